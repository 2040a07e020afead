"""A VQ-VAE: the nearest codes by distances and one_hot, gradients straight through, codes as moving averages, residual stacks, and weight norm."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded
from torch.nn.utils.parametrizations import weight_norm


class Quantizer(nn.Module):
    def __init__(self, codes, width, commitment=0.25):
        super().__init__()
        self.codes, self.width, self.commitment = codes, width, commitment
        self.embedding = nn.Embedding(codes, width)
        self.embedding.weight.data.uniform_(-1 / codes, 1 / codes)

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, self.width)
        distances = torch.sum(flat**2, dim=1, keepdim=True) + torch.sum(self.embedding.weight**2, dim=1) - 2 * torch.matmul(flat, self.embedding.weight.t())
        at = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(at.shape[0], self.codes, device=inputs.device)
        encodings.scatter_(1, at, 1)
        quantized = torch.matmul(encodings, self.embedding.weight).view(inputs.shape)
        loss = F.mse_loss(quantized, inputs.detach()) + self.commitment * F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        used = torch.mean(encodings, dim=0)
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), torch.exp(-torch.sum(used * torch.log(used + 1e-10)))


class QuantizerEMA(nn.Module):
    def __init__(self, codes, width, decay=0.9, eps=1e-5):
        super().__init__()
        table = numbers(width, codes, seed=4)
        self.register_buffer("embed", table)
        self.register_buffer("cluster_size", torch.zeros(codes))
        self.register_buffer("embed_avg", table.clone())
        self.decay, self.eps, self.codes = decay, eps, codes

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        at = (-torch.cdist(flat, self.embed.t())).max(1)[1]
        one_hot = F.one_hot(at, self.codes).type(flat.dtype)
        quantize = F.embedding(at.view(*x.shape[:-1]), self.embed.transpose(0, 1))
        if self.training:
            self.cluster_size.data.mul_(self.decay).add_(one_hot.detach().sum(0), alpha=1 - self.decay)
            self.embed_avg.data.mul_(self.decay).add_(flat.detach().transpose(0, 1) @ one_hot, alpha=1 - self.decay)
            n = self.cluster_size.sum()
            size = (self.cluster_size + self.eps) / (n + self.codes * self.eps) * n
            self.embed.data.copy_(self.embed_avg / size.unsqueeze(0))
        diff = (quantize.detach() - x).pow(2).mean()
        return x + (quantize - x).detach(), diff


class Residual(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(False), nn.Conv2d(width, hidden, 3, 1, 1, bias=False), nn.ReLU(True), nn.Conv2d(hidden, width, 1, bias=False))

    def forward(self, x):
        return x + self.block(x)


class Model(nn.Module):
    def __init__(self, width=8, codes=6):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1), *[Residual(width, 4) for _ in range(2)])
        self.to_code = weight_norm(nn.Conv2d(width, 5, 1))
        self.vq, self.ema = Quantizer(codes, 5), QuantizerEMA(codes, 5)
        self.up = nn.ModuleDict({"in": nn.Conv2d(10, width, 3, padding=1), "stack": nn.ModuleList([Residual(width, 4)]), "t1": nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
                                 "t2": nn.ConvTranspose2d(width // 2, 2, 4, 2, 1)})

    def forward(self, x):
        z = self.to_code(self.down(x))
        loss, one, perplexity = self.vq(z)
        two, diff = self.ema(z.movedim(1, -1))
        y = self.up["in"](torch.cat([one, two.movedim(-1, 1)], 1))
        for layer in self.up["stack"]:
            y = layer(y)
        return self.up["t2"](F.relu(self.up["t1"](F.relu(y)))), loss + 0.25 * diff, perplexity


def main():
    model = seeded(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, amsgrad=False)
    for step in range(5):
        x = numbers(4, 2, 16, 16, seed=step)
        optimizer.zero_grad()
        y, vq_loss, perplexity = model(x)
        loss = F.mse_loss(y, x) / torch.var(x) + vq_loss
        loss.backward()
        optimizer.step()
        assert 1 <= perplexity.item() <= 6.01
        yield loss.item()
