"""Two networks against each other: transposed convolutions, batch norm, weights by module.apply, BCELoss, two Adams."""
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim as optim
from support import numbers, seeded

DTYPE = "float64"


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def main():
    cudnn.benchmark = True
    net_g, net_d = Generator(8, 6), Discriminator(6)
    net_g.apply(weights_init)
    net_d.apply(weights_init)
    seeded(net_g, 1), seeded(net_d, 2)
    criterion = nn.BCELoss()
    opt_d = optim.Adam(net_d.parameters(), lr=0.0002, betas=(0.5, 0.999))
    opt_g = optim.Adam(net_g.parameters(), lr=0.0002, betas=(0.5, 0.999))
    for step in range(5):
        real = torch.tanh(numbers(8, 3, 16, 16, seed=step))
        net_d.zero_grad()
        label = torch.full((8,), 1, dtype=real.dtype, device=real.device)
        err_real = criterion(net_d(real), label)
        err_real.backward()
        fake = net_g(numbers(8, 8, 1, 1, seed=step + 50))
        label.fill_(0)
        err_fake = criterion(net_d(fake.detach()), label)
        err_fake.backward()
        opt_d.step()
        net_g.zero_grad()
        label.fill_(1)
        err_g = criterion(net_d(fake), label)
        err_g.backward()
        opt_g.step()
        yield (err_real + err_fake).item()
        yield err_g.item()
