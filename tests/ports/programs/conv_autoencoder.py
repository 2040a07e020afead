"""A denoising autoencoder: max pools with indices and unpooling, transposed convolutions, interpolation in three modes, PixelShuffle, and a loss of gradients and SSIM."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded

DTYPE = "float64"


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, padding_mode="replicate")
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(2, 2, return_indices=True)
        self.norm = nn.GroupNorm(2, 2 * width)
        self.act = nn.PReLU(2 * width)

    def forward(self, x):
        x, indices = self.pool(F.elu(self.conv1(x)))
        return self.act(self.norm(self.conv2(x))), indices


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1)
        self.unpool = nn.MaxUnpool2d(2, 2)
        self.shuffle = nn.Sequential(nn.Conv2d(2 * width, 4, 1), nn.PixelShuffle(2))
        self.out = nn.Conv2d(width + 2, 1, 3, padding=1)

    def forward(self, x, indices, size):
        fine = self.unpool(F.silu(self.up(x)), indices, output_size=size)
        coarse = F.interpolate(self.shuffle(x), size=size, mode="bilinear", align_corners=False)
        rough = F.interpolate(x.mean(1, keepdim=True), scale_factor=4, mode="bicubic", align_corners=True)
        return torch.sigmoid(self.out(torch.cat([fine, coarse, rough], dim=1)))


class Autoencoder(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.encoder, self.decoder = Encoder(width), Decoder(width)

    def forward(self, x):
        code, indices = self.encoder(x)
        return self.decoder(code, indices, x.shape[-2:])


def ssim(x, y, size=5):
    axis = torch.arange(size, dtype=x.dtype) - size // 2
    bell = torch.exp(-(axis**2) / (2 * 1.5**2))
    window = torch.outer(bell, bell).div(bell.sum() ** 2).expand(1, 1, size, size).contiguous()
    blur = lambda t: F.conv2d(t, window)  # noqa: E731
    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx.pow(2), blur(y * y) - my.pow(2), blur(x * y) - mx * my
    return (((2 * mx * my + 1e-4) * (2 * cov + 9e-4)) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))).mean()


def edges(x):
    return x[..., 1:, :-1] - x[..., :-1, :-1], x[..., :-1, 1:] - x[..., :-1, :-1]


def main():
    model = seeded(Autoencoder())
    optimizer = torch.optim.NAdam([{"params": model.encoder.parameters(), "lr": 2e-3}, {"params": model.decoder.parameters()}], lr=4e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for step in range(5):
        clean = F.avg_pool2d(numbers(3, 1, 20, 16, seed=step), 3, 1, 1, count_include_pad=False).sigmoid()
        noisy = (clean + 0.1 * numbers(3, 1, 20, 16, seed=50 + step)).clamp_(0, 1)
        out = model(noisy)
        loss = F.mse_loss(out, clean) + 0.2 * (1 - ssim(out, clean)) + 0.1 * sum(F.smooth_l1_loss(a, b, beta=0.1) for a, b in zip(edges(out), edges(clean)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        yield loss.item()
