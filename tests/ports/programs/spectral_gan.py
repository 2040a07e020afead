"""A GAN with spectral norm in the critic, hinge losses, a gradient penalty, and a moving average of the generator."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded
from torch.nn.utils import spectral_norm
from torch.nn.utils.parametrizations import spectral_norm as parametrized

DTYPE = "float64"


class Generator(nn.Module):
    def __init__(self, code=8, width=8):
        super().__init__()
        self.start = nn.Linear(code, width * 16)
        self.main = nn.Sequential(
            nn.Unflatten(1, (width, 4, 4)),
            nn.ConvTranspose2d(width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(width, 4, 3, padding=1, padding_mode="reflect"), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(4, 1, 3, padding="same"), nn.Tanh())

    def forward(self, z):
        return self.main(self.start(z))


class Critic(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.1, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.1, inplace=True))
        self.last = nn.Linear(2 * width, 1)

    def forward(self, x):
        return self.last(self.features(x).sum(dim=(2, 3))).squeeze(1)


def normed(critic):
    """Vectors of the power iteration that do not depend on the generator of random numbers."""
    critic.features[0] = spectral_norm(critic.features[0])
    critic.features[2] = parametrized(critic.features[2], n_power_iterations=2)
    critic.last = spectral_norm(critic.last)
    for name, buffer in critic.named_buffers():
        if name.endswith(("_u", "_v")):
            buffer.copy_(F.normalize(torch.ones_like(buffer), dim=0))
    return critic


def penalty(critic, real, fake, mix):
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    out = critic(between)
    (gradient,) = torch.autograd.grad(outputs=out, inputs=between, grad_outputs=torch.ones_like(out), create_graph=True, retain_graph=True, only_inputs=True)
    return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def follow(average, model, decay=0.9):
    for old, value in zip(average.parameters(), model.parameters()):
        old.mul_(decay).add_(value.data, alpha=1 - decay)
    for old, value in zip(average.buffers(), model.buffers()):
        old.copy_(value)


def main():
    generator, critic = seeded(Generator()), normed(seeded(Critic(), 1))
    average = copy.deepcopy(generator).requires_grad_(False)
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9), amsgrad=True)
    of_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-3, centered=True)
    for step in range(3):
        real = numbers(6, 1, 16, 16, seed=step).tanh()
        fake = generator(numbers(6, 8, seed=100 + step))
        of_critic.zero_grad()
        loss = F.relu(1.0 - critic(real)).mean() + F.relu(1.0 + critic(fake.detach())).mean()
        loss = loss + 10 * penalty(critic, real, fake.detach(), numbers(6, 1, 1, 1, seed=200 + step).sigmoid())
        loss.backward()
        of_critic.step()
        yield loss.item()
        for p in critic.parameters():
            p.requires_grad = False
        of_generator.zero_grad()
        loss = -critic(generator(numbers(6, 8, seed=300 + step))).mean()
        loss.backward()
        of_generator.step()
        for p in critic.parameters():
            p.requires_grad = True
        follow(average, generator)
        yield loss.item()
    average.eval()
    yield average(numbers(2, 8, seed=9)).abs().mean().item()
