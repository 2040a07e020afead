"""Rows of an image as a sequence: LSTM, batch norm, Adadelta."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from support import integers, numbers, seeded

DTYPE = "float64"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(input_size=14, hidden_size=16, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(16)
        self.dropout1 = nn.Dropout2d(0.0)
        self.fc1 = nn.Linear(16, 8)
        self.fc2 = nn.Linear(8, 10)

    def forward(self, input):
        input = input.reshape(-1, 14, 14)
        output, hidden = self.rnn(input)
        output = self.batchnorm(output[:, -1, :])
        output = self.dropout1(output.unsqueeze(0)).squeeze(0)
        output = F.relu(self.fc1(output))
        return F.log_softmax(self.fc2(output), dim=1)


def main():
    model = seeded(Net())
    optimizer = optim.Adadelta(model.parameters(), lr=0.1)
    for step in range(5):
        data, target = numbers(12, 1, 14, 14, seed=step), integers(10, 12, seed=step)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        yield loss.item()
