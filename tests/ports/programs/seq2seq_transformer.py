"""Translation of number sequences: nn.Transformer with causal and padding masks, a warm-up schedule, label smoothing, and greedy decoding."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, seeded
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, EOS = 0, 1, 2


class PositionalEncoding(nn.Module):
    def __init__(self, width, dropout, length=50):
        super().__init__()
        rates = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
        places = torch.arange(0, length).reshape(length, 1)
        table = torch.zeros((length, width))
        table[:, 0::2] = torch.sin(places * rates)
        table[:, 1::2] = torch.cos(places * rates)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", table.unsqueeze(-2), persistent=False)

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(0), :])


class TokenEmbedding(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=PAD)
        self.width = width

    def forward(self, tokens):
        return self.embedding(tokens.long()) * math.sqrt(self.width)


class Seq2Seq(nn.Module):
    def __init__(self, words, width=32):
        super().__init__()
        self.transformer = Transformer(d_model=width, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=48, dropout=0.0)
        self.generator = nn.Linear(width, words)
        self.source, self.target = TokenEmbedding(words, width), TokenEmbedding(words, width)
        self.position = PositionalEncoding(width, dropout=0.0)

    def forward(self, src, tgt, src_mask, tgt_mask, src_padding, tgt_padding, memory_padding):
        outs = self.transformer(self.position(self.source(src)), self.position(self.target(tgt)), src_mask, tgt_mask, None,
                                src_padding, tgt_padding, memory_padding)
        return self.generator(outs)

    def encode(self, src, mask):
        return self.transformer.encoder(self.position(self.source(src)), mask)

    def decode(self, tgt, memory, mask):
        return self.transformer.decoder(self.position(self.target(tgt)), memory, mask)


def subsequent(size):
    mask = (torch.triu(torch.ones((size, size))) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, float(0.0))


def masks(src, tgt):
    tgt_mask = subsequent(tgt.shape[0]) < 0
    src_mask = torch.zeros((src.shape[0], src.shape[0])).type(torch.bool)
    return src_mask, tgt_mask, (src == PAD).transpose(0, 1), (tgt == PAD).transpose(0, 1)


def batch(step):
    rows = [3 + integers(20, 4 + (step + i) % 5, seed=step * 10 + i) for i in range(6)]
    ends = lambda row: torch.cat((torch.tensor([BOS]), row, torch.tensor([EOS])))  # noqa: E731
    return pad_sequence([ends(r) for r in rows], padding_value=PAD), pad_sequence([ends(r.flip(0)) for r in rows], padding_value=PAD)


def greedy(model, src, length):
    src_mask = torch.zeros(src.shape[0], src.shape[0]).type(torch.bool)
    memory = model.encode(src, src_mask)
    ys = torch.ones(1, 1).fill_(BOS).type(torch.long)
    for _ in range(length - 1):
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(ys.size(0)).type(torch.bool)
        out = model.decode(ys, memory, tgt_mask).transpose(0, 1)
        _, word = torch.max(model.generator(out[:, -1]), dim=1)
        ys = torch.cat([ys, torch.ones(1, 1).type_as(src.data).fill_(word.item())], dim=0)
        if word.item() == EOS:
            break
    return ys.flatten()


def main():
    model = seeded(Seq2Seq(23))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * 3**-1.5))
    model.train()
    for step in range(5):
        src, tgt = batch(step)
        tgt_in, tgt_out = tgt[:-1, :], tgt[1:, :]
        src_mask, tgt_mask, src_padding, tgt_padding = masks(src, tgt_in)
        logits = model(src, tgt_in, src_mask, tgt_mask, src_padding, tgt_padding, src_padding)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1), ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()
    model.eval()
    with torch.inference_mode():
        written = greedy(model, src[:, :1], 8)
    assert written[0].item() == BOS and written.numel() <= 8
    yield float(written.sum())
