"""Contrastive learning of two views: cosine similarity of all pairs, a momentum encoder with a queue, cosine annealing with restarts, and k nearest neighbours."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded


class Projector(nn.Module):
    def __init__(self, width=24, out=12):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, width), nn.BatchNorm1d(width), nn.Mish(), nn.Linear(width, width))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out, bias=False))

    def forward(self, x):
        return self.head(self.backbone(x))


def nt_xent(features, temperature=0.5):
    similar = F.cosine_similarity(features[:, None, :], features[None, :, :], dim=-1)
    own = torch.eye(similar.shape[0], dtype=torch.bool, device=similar.device)
    similar.masked_fill_(own, -9e15)
    positive = own.roll(shifts=similar.shape[0] // 2, dims=0)
    similar = similar / temperature
    nll = -similar[positive] + torch.logsumexp(similar, dim=-1)
    order = torch.cat([similar[positive][:, None], similar.masked_fill(positive, -9e15)], dim=-1).argsort(dim=-1, descending=True).argmin(dim=-1)
    return nll.mean(), (order == 0).to(features.dtype).mean(), 1 + order.float().mean()


class Momentum(nn.Module):
    def __init__(self, encoder, size=16, dim=12, m=0.9):
        super().__init__()
        self.m, self.encoder_q, self.encoder_k = m, encoder, copy.deepcopy(encoder)
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(numbers(dim, size, seed=77), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _update(self, keys):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * self.m + q.data * (1.0 - self.m)
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + keys.shape[0]] = keys.T
        self.queue_ptr[0] = (ptr + keys.shape[0]) % self.queue.shape[1]

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1).div(0.2)
        self._update(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)


def neighbours(bank, labels, query, k=5, classes=4):
    weights, at = torch.mm(query, bank.t()).topk(k=k, dim=-1)
    votes = torch.gather(labels.expand(query.size(0), -1), dim=-1, index=at)
    one_hot = torch.zeros(query.size(0) * k, classes).scatter(dim=-1, index=votes.view(-1, 1), value=1.0)
    return torch.sum(one_hot.view(query.size(0), -1, classes) * (weights / 0.1).exp().unsqueeze(dim=-1), dim=1)


def main():
    model = Momentum(seeded(Projector()))
    model.encoder_k.load_state_dict(model.encoder_q.state_dict())
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3)
    for step in range(5):
        x = numbers(8, 10, seed=step)
        one, two = x + 0.1 * numbers(8, 10, seed=20 + step), x * (numbers(8, 1, seed=30 + step).abs() + 0.5)
        logits, labels = model(one, two)
        nll, hit, rank = nt_xent(model.encoder_q(torch.cat([one, two])))
        loss = F.cross_entropy(logits, labels) + nll
        assert 0 <= hit <= 1 <= rank
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(step + 0.5)
        yield loss.item()
    model.eval()
    with torch.no_grad():
        bank = F.normalize(model.encoder_q.backbone(numbers(20, 10, seed=90)), dim=-1)
        yield neighbours(bank, integers(4, 20), bank[:6]).log1p().mean().item()
