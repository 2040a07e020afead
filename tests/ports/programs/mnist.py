"""A small convolutional network for digits: Adadelta, a schedule by epochs, log_softmax and nll_loss."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from support import integers, numbers, seeded
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(2304, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout(x), 1)
        x = F.relu(self.fc1(x), inplace=True)
        return F.log_softmax(self.fc2(x), dim=1)


def evaluate(model, device, loader):
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            total += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(dim=1, keepdim=True).eq(target.view_as(output.argmax(dim=1, keepdim=True))).sum().item()
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--no-accel", action="store_true")
    args = parser.parse_args([])
    use_accel = not args.no_accel and torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    torch.manual_seed(1)
    data = TensorDataset(numbers(80, 1, 28, 28), integers(10, 80))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=False, **({"num_workers": 0, "pin_memory": True} if use_accel else {}))
    model = seeded(Net()).to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    model.train()
    for batch, (x, target) in enumerate(loader):
        x, target = x.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), target)
        loss.backward()
        optimizer.step()
        if batch == 2:
            scheduler.step()
        yield loss.item()
    yield evaluate(model, device, loader)
