"""A variational autoencoder: binary cross entropy with sum, the divergence from a normal distribution, Adam."""
import torch
from support import numbers, seeded
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(196, 40)
        self.fc21 = nn.Linear(40, 6)
        self.fc22 = nn.Linear(40, 6)
        self.fc3 = nn.Linear(6, 40)
        self.fc4 = nn.Linear(40, 196)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, noise):
        std = torch.exp(0.5 * logvar)
        return mu + noise.type_as(torch.randn_like(std)) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, noise):
        mu, logvar = self.encode(x.view(-1, 196))
        return self.decode(self.reparameterize(mu, logvar, noise)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 196), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main():
    torch.cuda.manual_seed(1)
    model = seeded(VAE())
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for step in range(5):
        data = torch.sigmoid(numbers(16, 1, 14, 14, seed=step))
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, numbers(16, 6, seed=step + 100))
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        yield loss.item() / len(data)
