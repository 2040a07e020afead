"""Text to sound: frames by durations, overlapping windows filtered by complex weights in the frequency domain, a loss of log-mel spectrograms and CTC;
the weights of a copy go on from the trained ones."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch.nn.utils.parametrizations import weight_norm

DTYPE = "float64"
WINDOW, HOP, SYMBOLS = 16, 8, 12


class Vocoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, dim, max_norm=1.5, scale_grad_by_freq=True)
        self.duration = nn.Linear(dim, 1)
        self.stack = nn.Sequential(*[weight_norm(nn.Conv1d(dim, dim, 3, dilation=2**i, padding=2**i)) for i in range(2)])
        self.head = nn.ConvTranspose1d(dim, 1, 8, 4, 2)
        self.ctc = nn.Linear(dim, SYMBOLS + 1)

    def forward(self, symbols, durations):
        x = self.embedding(symbols)
        frames = nn.utils.rnn.pad_sequence([torch.repeat_interleave(row, n, dim=0) for row, n in zip(x, durations)], batch_first=True)
        y = self.stack(frames.mT)
        wave = self.head(y).squeeze(1)
        spectrum = torch.fft.rfft(wave.unfold(-1, WINDOW, HOP) * torch.hann_window(WINDOW), dim=-1) * self.filter
        parts = torch.fft.irfft(spectrum, n=WINDOW, dim=-1)
        sound = F.fold(parts.transpose(1, 2), (1, (parts.shape[1] - 1) * HOP + WINDOW), (1, WINDOW), stride=(1, HOP)).flatten(1)
        return sound, self.duration(x).squeeze(-1), self.ctc(y.mT).log_softmax(-1)


def log_mel(wave, banks):
    return torch.log1p(torch.stft(wave, WINDOW, 4, window=torch.hamming_window(WINDOW), return_complex=True).abs().pow(2).mT @ banks)


def train(model, steps):
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=1e-3, initial_accumulator_value=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    banks = torch.relu(1 - (torch.arange(9.0)[:, None] - torch.linspace(0, 8, 5)).abs() / 2)
    lengths = torch.tensor([6, 4, 5])
    for step in range(steps):
        symbols, durations = integers(SYMBOLS, 3, 6, seed=step), integers(3, 3, 6, seed=step) + 1
        durations = durations.masked_fill(torch.arange(6) >= lengths[:, None], 0)
        sound, log_durations, log_probs = model(symbols, durations)
        target = torch.sin(torch.cumsum(0.1 * numbers(*sound.shape, seed=step).abs(), 1))
        loss = F.l1_loss(log_mel(sound, banks), log_mel(target, banks)) + F.huber_loss(log_durations, torch.log1p(durations.to(log_durations.dtype)), delta=0.5)
        loss = loss + F.ctc_loss(log_probs.transpose(0, 1), symbols.clamp(min=1), durations.sum(1), (lengths / 2).int(), blank=SYMBOLS, zero_infinity=True)
        loss = loss + F.gaussian_nll_loss(log_durations, torch.zeros_like(log_durations), log_durations.square() + 0.1, full=True)
        loss.backward()  # of a copy, the first gradients are its own
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        yield loss.item()


def main():
    model = seeded(Vocoder())
    model.filter = nn.Parameter(torch.full((WINDOW // 2 + 1,), 1 + 0.1j, dtype=torch.complex128))
    yield from train(model, 4)
    model(integers(SYMBOLS, 1, 6), torch.ones(1, 6, dtype=torch.long))[0].sum().backward()
    yield from train(copy.deepcopy(model), 3)
