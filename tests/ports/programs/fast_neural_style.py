"""The style of one image for another: reflection padding, instance norm, upsampling by interpolate, Gram matrices, a frozen network of features."""
from collections import namedtuple

import torch
import torch.nn as nn
from support import numbers, seeded

DTYPE = "float64"


class ConvLayer(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, upsample=None):
        super(ConvLayer, self).__init__()
        self.upsample = upsample
        self.reflection_pad = torch.nn.ReflectionPad2d(kernel_size // 2)
        self.conv2d = torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride)

    def forward(self, x):
        if self.upsample:
            x = torch.nn.functional.interpolate(x, mode="nearest", scale_factor=self.upsample)
        return self.conv2d(self.reflection_pad(x))


class ResidualBlock(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = ConvLayer(channels, channels, kernel_size=3, stride=1)
        self.in1 = torch.nn.InstanceNorm2d(channels, affine=True)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        return self.relu(self.in1(self.conv1(x))) + x


class TransformerNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.in1 = ConvLayer(3, 6, kernel_size=5, stride=1), torch.nn.InstanceNorm2d(6, affine=True)
        self.conv2, self.in2 = ConvLayer(6, 12, kernel_size=3, stride=2), torch.nn.InstanceNorm2d(12, affine=True)
        self.res1 = ResidualBlock(12)
        self.deconv1, self.in4 = ConvLayer(12, 6, kernel_size=3, stride=1, upsample=2), torch.nn.InstanceNorm2d(6, affine=True)
        self.deconv3 = ConvLayer(6, 3, kernel_size=5, stride=1)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        y = self.relu(self.in1(self.conv1(x)))
        y = self.res1(self.relu(self.in2(self.conv2(y))))
        return self.deconv3(self.relu(self.in4(self.deconv1(y))))


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()]
        self.slice1, self.slice2 = torch.nn.Sequential(), torch.nn.Sequential()
        for x in range(2):
            self.slice1.add_module(str(x), layers[x])
        for x in range(2, 5):
            self.slice2.add_module(str(x), layers[x])

    def forward(self, x):
        first = self.slice1(x)
        return namedtuple("Outputs", ["first", "second"])(first, self.slice2(first))


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def main():
    transformer, features = seeded(TransformerNet(), 1), seeded(Features(), 2)
    for param in features.parameters():
        param.requires_grad = False
    optimizer = torch.optim.Adam(transformer.parameters(), 1e-3)
    mse_loss = torch.nn.MSELoss()
    gram_style = [gram_matrix(y) for y in features(numbers(1, 3, 12, 12, seed=99).repeat(2, 1, 1, 1))]
    for step in range(5):
        x = numbers(2, 3, 12, 12, seed=step)
        optimizer.zero_grad()
        y = transformer(x)
        of_y, of_x = features(y), features(x)
        loss = 10.0 * mse_loss(of_y.second, of_x.second)
        for ft_y, gm_s in zip(of_y, gram_style):
            loss += 1e2 * mse_loss(gram_matrix(ft_y), gm_s[: len(x), :, :])
        loss.backward()
        optimizer.step()
        yield loss.item()
