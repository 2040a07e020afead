"""Denoising diffusion: a U-Net with sinusoidal times, residual blocks with group norm, attention, weights averaged over steps; one step back in time."""
import copy
import math

import torch
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch import nn


def extract(a, t, x_shape):
    b, *_ = t.shape
    return a.gather(-1, t).reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, time_emb_dim, groups=4):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2))
        self.proj1, self.norm1 = nn.Conv2d(dim, dim_out, 3, padding=1), nn.GroupNorm(groups, dim_out)
        self.proj2, self.norm2 = nn.Conv2d(dim_out, dim_out, 3, padding=1), nn.GroupNorm(groups, dim_out)
        self.act = nn.SiLU()
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, time_emb):
        scale, shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
        h = self.norm1(self.proj1(x)) * (scale + 1) + shift
        h = self.act(self.norm2(self.proj2(self.act(h))))
        return h + self.res_conv(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), self.to_qkv(x).chunk(3, dim=1))
        sim = torch.einsum("b h d i, b h d j -> b h i j", q * self.scale, k)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        out = torch.einsum("b h i j, b h d j -> b h d i", sim.softmax(dim=-1), v)
        return self.to_out(out.reshape(b, -1, h, w)) + x


class Unet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.init_conv = nn.Conv2d(1, dim, 7, padding=3)
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim * 4))
        self.downs = nn.ModuleList([nn.ModuleList([ResnetBlock(dim, dim, dim * 4), nn.Conv2d(dim, dim * 2, 4, 2, 1)])])
        self.mid_block, self.mid_attn = ResnetBlock(dim * 2, dim * 2, dim * 4), Attention(dim * 2)
        self.ups = nn.ModuleList([nn.ModuleList([nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(dim * 2, dim, 3, padding=1)), ResnetBlock(dim * 2, dim, dim * 4)])])
        self.final_conv = nn.Conv2d(dim, 1, 1)

    def forward(self, x, time):
        x, t, h = self.init_conv(x), self.time_mlp(time), []
        for block, downsample in self.downs:
            x = block(x, t)
            h.append(x)
            x = downsample(x)
        x = self.mid_attn(self.mid_block(x, t))
        for upsample, block in self.ups:
            x = block(torch.cat((upsample(x), h.pop()), dim=1), t)
        return self.final_conv(x)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=20):
        super().__init__()
        self.model, self.num_timesteps = model, timesteps
        betas = torch.linspace(1e-3, 0.2, timesteps, dtype=torch.float64)
        alphas = 1.0 - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.get_default_dtype()))  # noqa: E731
        register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))
        register_buffer("posterior_variance", betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod))
        register_buffer("sqrt_recip_alphas", torch.sqrt(1.0 / alphas))
        register_buffer("betas", betas)

    def q_sample(self, x_start, t, noise):
        return extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start + extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise

    def forward(self, x_start, t, noise):
        return F.mse_loss(self.model(self.q_sample(x_start, t, noise), t), noise, reduction="none").flatten(1).mean(1).mean()

    @torch.inference_mode()
    def p_sample(self, x, t, noise):
        eps = self.model(x, t)
        mean = extract(self.sqrt_recip_alphas, t, x.shape) * (x - extract(self.betas, t, x.shape) / extract(self.sqrt_one_minus_alphas_cumprod, t, x.shape) * eps)
        keep = (1 - (t == 0).to(x.dtype)).reshape(-1, 1, 1, 1)
        return (mean + keep * extract(self.posterior_variance, t, x.shape).sqrt() * noise).clamp_(-2.0, 2.0)


def main():
    diffusion = GaussianDiffusion(seeded(Unet()))
    ema = copy.deepcopy(diffusion)
    optimizer = torch.optim.Adam(diffusion.parameters(), lr=1e-3, betas=(0.9, 0.99))
    for step in range(5):
        loss = diffusion(numbers(4, 1, 12, 12, seed=step), integers(20, 4, seed=step), numbers(4, 1, 12, 12, seed=step + 30))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for ma, current in zip(ema.parameters(), diffusion.parameters()):
                ma.data.mul_(0.9).add_(current.data, alpha=0.1)
        yield loss.item()
    yield ema.p_sample(numbers(2, 1, 12, 12), torch.tensor([3, 0]), numbers(2, 1, 12, 12, seed=1)).pow(2).mean().item()
