"""A RealNVP flow: coupling layers with masks as buffers, batch norm with its own running statistics, log determinants, the inverse, a learned prior."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded
from torch import distributions


class Coupling(nn.Module):
    def __init__(self, features, hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale_net = nn.Sequential(nn.Linear(features, hidden), nn.LeakyReLU(), nn.Linear(hidden, features), nn.Tanh())
        self.shift_net = nn.Sequential(nn.Linear(features, hidden), nn.LeakyReLU(), nn.Linear(hidden, features))
        self.log_gain = nn.Parameter(torch.zeros(features))

    def parts(self, x):
        kept = x * self.mask
        free = 1 - self.mask
        return self.scale_net(kept) * self.log_gain.exp() * free, self.shift_net(kept) * free

    def forward(self, x):
        log_s, t = self.parts(x)
        return torch.addcmul(t, x, torch.exp(log_s)), log_s.sum(dim=-1)

    def inverse(self, y):
        log_s, t = self.parts(y)
        return (y - t) * torch.exp(-log_s)


class FlowNorm(nn.Module):
    def __init__(self, features, momentum=0.9, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.log_gamma = nn.Parameter(torch.zeros(features))
        self.beta = nn.Parameter(torch.zeros(1, features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            self.running_mean.mul_(self.momentum).add_(mean.data * (1 - self.momentum))
            self.running_var.mul_(self.momentum).add_(var.data * (1 - self.momentum))
        else:
            mean, var = self.running_mean, self.running_var
        y = self.log_gamma.exp() * (x - mean) / torch.sqrt(var + self.eps) + self.beta
        return y, (self.log_gamma - 0.5 * torch.log(var + self.eps)).expand_as(x).sum(-1)

    def inverse(self, y):
        return (y - self.beta) * torch.exp(-self.log_gamma) * torch.sqrt(self.running_var + self.eps) + self.running_mean


class Flow(nn.Module):
    def __init__(self, features=4, hidden=16, layers=4):
        super().__init__()
        masks = [torch.arange(features).remainder(2).eq(i % 2).to(torch.get_default_dtype()) for i in range(layers)]
        self.steps = nn.ModuleList(step for m in masks for step in (Coupling(features, hidden, m), FlowNorm(features)))
        self.loc, self.log_scale = nn.Parameter(torch.zeros(features)), nn.Parameter(torch.zeros(features))

    @property
    def prior(self):
        return distributions.Independent(distributions.Normal(self.loc, self.log_scale.exp()), 1)

    def log_prob(self, x):
        total = x.new_zeros(x.size(0))
        for step in self.steps:
            x, log_det = step(x)
            total += log_det
        return self.prior.log_prob(x) + total

    @torch.no_grad()
    def invert(self, z):
        for step in reversed(self.steps):
            z = step.inverse(z)
        return z


DTYPE = "float64"


def main():
    data = numbers(64, 4)
    data[:, 1] = data[:, 0] ** 2 * 0.5 + 0.1 * data[:, 1]
    model = seeded(Flow())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    for batch in data.split(16):
        optimizer.zero_grad()
        loss = -model.log_prob(batch).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        yield loss.item()
        yield float(norm)
    model.eval()
    x = data[:8]
    z = x
    for step in model.steps:
        z, _ = step(z)
    yield F.mse_loss(model.invert(z), x).sqrt().item() + 1.0
