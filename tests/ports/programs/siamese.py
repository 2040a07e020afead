"""Pairs of images through one network: shared weights, a residual network whose head is removed, BCELoss of a pair."""
import torch
import torch.nn as nn
import torch.optim as optim
from support import integers, numbers, seeded
from torch.utils.data import DataLoader, Dataset

DTYPE = "float64"


class Block(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Block(8, 8), Block(8, 16, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layers(self.stem(x))), 1))


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.resnet = Residual()
        self.fc_in_features = self.resnet.fc.in_features
        self.resnet = nn.Sequential(*(list(self.resnet.children())[:-1]))
        self.fc = nn.Sequential(nn.Linear(self.fc_in_features * 2, 24), nn.ReLU(inplace=True), nn.Linear(24, 1))
        self.sigmoid = nn.Sigmoid()
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.resnet(x)
        return output.view(output.size()[0], -1)

    def forward(self, input1, input2):
        output = torch.cat((self.forward_once(input1), self.forward_once(input2)), 1)
        return self.sigmoid(self.fc(output))


class Pairs(Dataset):
    def __init__(self):
        self.images, self.labels = numbers(40, 1, 14, 14), integers(4, 40)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        other = (index * 7 + 3) % 40
        return self.images[index], self.images[other], (self.labels[index] == self.labels[other]).to(torch.get_default_dtype())


def main():
    model = seeded(SiameseNetwork())
    model.train()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    criterion = nn.BCELoss()
    for images_1, images_2, targets in DataLoader(Pairs(), batch_size=8, num_workers=0):
        optimizer.zero_grad()
        outputs = model(images_1, images_2).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        yield loss.item()
