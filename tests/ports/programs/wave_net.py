"""A WaveNet: dilated causal convolutions, gated units with local conditioning, skip sums, mu-law codes, weight norm, a mixture of logistics, generation by a queue."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from support import numbers, seeded
from torch import nn
from torch.nn.utils import remove_weight_norm, weight_norm


def mu_law(x, mu=255):
    return torch.sign(x) * torch.log1p(mu * torch.abs(x)) / np.log1p(mu)


def quantize(x, mu=255):
    return ((mu_law(x, mu) + 1) / 2 * mu + 0.5).long()


class CausalConv1d(nn.Conv1d):
    def __init__(self, *args, dilation=1, **kwargs):
        super().__init__(*args, dilation=dilation, **kwargs)
        self.left = (self.kernel_size[0] - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class Block(nn.Module):
    def __init__(self, residual, gate, skip, cond, dilation):
        super().__init__()
        self.conv = weight_norm(CausalConv1d(residual, gate, 2, dilation=dilation))
        self.cond = weight_norm(nn.Conv1d(cond, gate, 1, bias=False))
        self.res = weight_norm(nn.Conv1d(gate // 2, residual, 1))
        self.skip = weight_norm(nn.Conv1d(gate // 2, skip, 1))

    def forward(self, x, c):
        a, b = (self.conv(x) + self.cond(c)).chunk(2, dim=1)
        z = torch.tanh(a) * torch.sigmoid(b)
        return (self.res(z) + x) * math.sqrt(0.5), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, channels=12, stacks=2, layers=3, mixtures=3, mels=5, hop=8):
        super().__init__()
        self.first = weight_norm(nn.Conv1d(1, channels, 1))
        self.blocks = nn.ModuleList([Block(channels, 2 * channels, channels, mels, 2**i) for _ in range(stacks) for i in range(layers)])
        self.last = nn.Sequential(nn.ReLU(inplace=True), weight_norm(nn.Conv1d(channels, channels, 1)), nn.ReLU(inplace=True), weight_norm(nn.Conv1d(channels, 3 * mixtures, 1)))
        self.up = nn.ModuleList()
        for s in (2, 4):
            self.up.append(weight_norm(nn.ConvTranspose2d(1, 1, (3, s), padding=(1, 0), stride=(1, s))))
        assert hop == 8

    def forward(self, x, c):
        c = c.unsqueeze(1)
        for layer in self.up:
            c = F.leaky_relu(layer(c), 0.4)
        c = c.squeeze(1)
        x, skips = self.first(x), 0.0
        for block in self.blocks:
            x, s = block(x, c[..., : x.size(-1)])
            skips = skips + s
        return self.last(skips * math.sqrt(1.0 / len(self.blocks)))

    def remove_weight_norm(self):
        def remove(m):
            try:
                remove_weight_norm(m)
            except ValueError:
                return

        self.apply(remove)


def logistic_mixture_loss(y_hat, y, classes=65536, log_scale_min=math.log(1e-14)):
    n = y_hat.size(1) // 3
    y_hat = y_hat.transpose(1, 2)
    logits, means = y_hat[:, :, :n], y_hat[:, :, n : 2 * n]
    log_scales = torch.clamp(y_hat[:, :, 2 * n :], min=log_scale_min)
    y = y.expand_as(means)
    centered, inv = y - means, torch.exp(-log_scales)
    plus, minus = inv * (centered + 1.0 / (classes - 1)), inv * (centered - 1.0 / (classes - 1))
    log_plus, log_one_minus = plus - F.softplus(plus), -F.softplus(minus)
    delta = torch.sigmoid(plus) - torch.sigmoid(minus)
    mid = inv * centered
    log_pdf = mid - log_scales - 2.0 * F.softplus(mid)
    inner_cond = (delta > 1e-5).to(y.dtype)
    inner = inner_cond * torch.log(torch.clamp(delta, min=1e-12)) + (1.0 - inner_cond) * (log_pdf - np.log((classes - 1) / 2))
    cond = (y > 0.999).to(y.dtype)
    inner = cond * log_one_minus + (1.0 - cond) * inner
    cond = (y < -0.999).to(y.dtype)
    log_probs = cond * log_plus + (1.0 - cond) * inner + F.log_softmax(logits, -1)
    return -torch.logsumexp(log_probs, dim=-1)


DTYPE = "float64"


def main():
    wave, mel = torch.tanh(numbers(2, 1, 64).cumsum(-1) * 0.2), numbers(2, 5, 8, seed=1)
    model = seeded(WaveNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, amsgrad=False)
    lengths = torch.LongTensor([63, 50])
    mask = (torch.arange(63).unsqueeze(0) < lengths.unsqueeze(-1)).to(wave.dtype)
    average = {k: v.clone() for k, v in model.named_parameters()}
    for _ in range(5):
        optimizer.zero_grad()
        out = model(wave[..., :-1], mel)
        losses = logistic_mixture_loss(out, wave[:, :, 1:].transpose(1, 2))
        loss = (losses * mask).sum() / mask.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for k, v in model.named_parameters():
                average[k].sub_(0.1 * (average[k] - v))
        yield loss.item()
    with torch.no_grad():
        before = model.eval()(wave, mel)
        model.remove_weight_norm()
        yield (model(wave, mel) - before).abs().max().item() + 1.0
        yield F.one_hot(quantize(wave), 256).to(wave.dtype).mean((0, 1, 2)).topk(3).values.sum().item()
        yield sum(v.norm().item() for v in average.values())
