"""Speech to letters: a spectrogram by torch.stft, mel filters, masks of time and frequency, convolutions, a bidirectional GRU, CTCLoss, and greedy decoding."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch.nn.utils.rnn import pad_packed_sequence, pack_padded_sequence, pad_sequence


def mel_filters(bins, count, rate):
    to_mel = lambda f: 2595.0 * torch.log10(1.0 + f / 700.0)  # noqa: E731
    edges = torch.linspace(0, float(to_mel(torch.tensor(rate / 2.0))), count + 2)
    places = 700.0 * (10.0 ** (edges / 2595.0) - 1.0)
    widths = places[1:] - places[:-1]
    slopes = places.unsqueeze(0) - torch.linspace(0, rate // 2, bins).unsqueeze(1)
    return torch.max(torch.zeros(1), torch.min(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))


class Features(nn.Module):
    def __init__(self, fft=64, hop=32, mels=12):
        super().__init__()
        self.fft, self.hop = fft, hop
        self.register_buffer("window", torch.hann_window(fft))
        self.register_buffer("filters", mel_filters(fft // 2 + 1, mels, 1600))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.fft, self.hop, window=self.window, center=True, pad_mode="reflect", return_complex=True)
        mel = torch.matmul(spectrum.abs().pow(2.0).transpose(-1, -2), self.filters).transpose(-1, -2)
        return torch.log(mel.clamp(min=1e-5))


def masked(mel, first, width, axis):
    keep = torch.ones(mel.shape[axis], dtype=torch.bool)
    keep[first : first + width] = False
    return mel.masked_fill(~(keep if axis == -1 else keep[:, None]), 0.0)


class Recognizer(nn.Module):
    def __init__(self, mels=12, hidden=16, letters=9):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv1d(mels, 16, 3, stride=2, padding=1), nn.GELU(), nn.Conv1d(16, 16, 3, padding=1, groups=2), nn.Hardtanh(0, 20, inplace=True))
        self.norm = nn.LayerNorm(16)
        self.rnn = nn.GRU(16, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, letters)

    def forward(self, mel, lengths):
        x = self.norm(self.convs(mel).transpose(1, 2))
        lengths = torch.div(lengths + 1, 2, rounding_mode="floor")
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        out, lengths = pad_packed_sequence(out, batch_first=True)
        return F.log_softmax(self.fc(out), dim=-1).transpose(0, 1), lengths


def decode(log_probs, lengths, blank=0):
    texts = []
    for row, length in zip(log_probs.argmax(dim=-1).transpose(0, 1), lengths):
        letters = torch.unique_consecutive(row[:length])
        texts.append(letters[letters != blank].tolist())
    return texts


def main():
    features, model = Features(), seeded(Recognizer())
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, steps_per_epoch=5, epochs=1, anneal_strategy="linear")
    for step in range(5):
        waves = [numbers(700 + 90 * i, seed=10 * step + i) for i in range(4)]
        mels = [masked(masked(features(w), 2, 2, -2), 5, 3, -1) for w in waves]
        lengths = torch.tensor([m.shape[-1] for m in mels])
        labels = [1 + integers(8, 3 + i, seed=10 * step + i) for i in range(4)]
        mel = pad_sequence([m.transpose(0, 1) for m in mels], batch_first=True).transpose(1, 2)
        log_probs, lengths = model(mel, lengths)
        loss = criterion(log_probs, torch.cat(labels), lengths, torch.tensor([len(label) for label in labels]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        yield loss.item()
    assert len(decode(log_probs.detach(), lengths)) == 4
