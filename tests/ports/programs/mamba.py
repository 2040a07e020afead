"""A selective state space model: causal depthwise conv1d, softplus steps, a scan in a loop and a parallel one by cumsum."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, seeded


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self, d_model=12, d_inner=24, d_state=4, d_conv=4):
        super().__init__()
        self.d_inner, self.dt_rank, self.d_state = d_inner, math.ceil(d_model / 16), d_state
        self.in_proj = nn.Linear(d_model, d_inner * 2, bias=False)
        self.conv1d = nn.Conv1d(in_channels=d_inner, out_channels=d_inner, bias=True, kernel_size=d_conv, groups=d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(d_inner, self.dt_rank + d_state * 2, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, d_inner, bias=True)
        A = torch.arange(1, d_state + 1).to(torch.get_default_dtype()).repeat(d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x):
        (b, l, d) = x.shape
        (x, res) = self.in_proj(x).split(split_size=[self.d_inner, self.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)
        y = self.ssm(F.silu(x)) * F.silu(res)
        return self.out_proj(y)

    def ssm(self, x):
        A = -torch.exp(self.A_log)
        (delta, B, C) = self.x_proj(x).split(split_size=[self.dt_rank, self.d_state, self.d_state], dim=-1)
        return self.selective_scan(x, F.softplus(self.dt_proj(delta)), A, B, C, self.D)

    def selective_scan(self, u, delta, A, B, C, D):
        (b, l, d_in) = u.shape
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        x, ys = torch.zeros((b, d_in, A.shape[1]), device=deltaA.device), []
        for i in range(l):
            x = deltaA[:, i] * x + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", x, C[:, i, :]))
        return torch.stack(ys, dim=1) + u * D


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixer, self.norm = MambaBlock(), RMSNorm(12)

    def forward(self, x):
        return self.mixer(self.norm(x)) + x


class Mamba(nn.Module):
    def __init__(self, vocab_size=20, n_layer=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 12)
        self.layers = nn.ModuleList([ResidualBlock() for _ in range(n_layer)])
        self.norm_f = RMSNorm(12)
        self.lm_head = nn.Linear(12, vocab_size, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def main():
    model = seeded(Mamba())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(5):
        data = integers(20, 3, 9, seed=step)
        logits = model(data[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
