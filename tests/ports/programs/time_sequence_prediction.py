"""Sine waves by two LSTM cells, in float64, with LBFGS and a closure."""
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from support import seeded


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 12)
        self.lstm2 = nn.LSTMCell(12, 12)
        self.linear = nn.Linear(12, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 12, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 12, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 12, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 12, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


DTYPE = "float64"


def main():
    x = np.arange(30)[None] + np.random.RandomState(2).randint(-80, 80, 9)[:, None]
    data = np.sin(x / 20.0)
    input, target = torch.from_numpy(data[3:, :-1].copy()), torch.from_numpy(data[3:, 1:].copy())
    test_input = torch.from_numpy(data[:3, :-1].copy())
    seq = seeded(Sequence().double())
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)
    losses = []
    for _ in range(3):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            losses.append(loss.item())
            loss.backward()
            return loss

        optimizer.step(closure)
    yield from losses
    with torch.no_grad():
        yield seq(test_input, future=4)[:, -1].pow(2).mean().item()
