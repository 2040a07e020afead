"""Metric learning: TripletMarginLoss with hard mining by cdist, a margin of angles (ArcFace), centres, a sampler of classes, and recall."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch.utils.data import DataLoader, Sampler, TensorDataset


class ClassSampler(Sampler):
    """Batches of p classes with k rows each."""

    def __init__(self, labels, p, k):
        self.rows = {c: torch.nonzero(labels == c, as_tuple=True)[0].tolist() for c in torch.unique(labels).tolist()}
        self.p, self.k = p, k

    def __iter__(self):
        classes = sorted(self.rows)
        for i in range(len(self)):
            chosen = [classes[(i + j) % len(classes)] for j in range(self.p)]
            yield [self.rows[c][(i + j) % len(self.rows[c])] for c in chosen for j in range(self.k)]

    def __len__(self):
        return 5


class ArcMargin(nn.Module):
    def __init__(self, width, classes, s=8.0, m=0.3):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.cos_m, self.sin_m, self.th, self.mm = s, math.cos(m), math.sin(m), math.cos(math.pi - m), math.sin(math.pi - m) * m

    def forward(self, x, label):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        one_hot = torch.zeros(cosine.size(), device=x.device)
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        return (one_hot * phi + (1.0 - one_hot) * cosine) * self.s


class CenterLoss(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(classes, width))

    def forward(self, x, labels):
        n, classes = x.size(0), self.centers.size(0)
        distmat = x.pow(2).sum(dim=1, keepdim=True).expand(n, classes) + self.centers.pow(2).sum(dim=1, keepdim=True).expand(classes, n).t()
        distmat = torch.addmm(distmat, x, self.centers.t(), beta=1, alpha=-2)
        mask = labels.unsqueeze(1).expand(n, classes).eq(torch.arange(classes).long().expand(n, classes))
        return (distmat * mask.to(distmat)).clamp(min=1e-12, max=1e12).sum() / n


def hard_triplets(emb, labels):
    """The farthest row of the same class and the nearest of another, for each row."""
    with torch.no_grad():
        distances = torch.cdist(emb, emb, p=2)
        same = labels[:, None] == labels[None]
        positive = (distances - 1e6 * (~same)).argmax(1)
        negative = (distances + 1e6 * same).argmin(1)
    return positive, negative


def main():
    labels = integers(5, 60)
    data = numbers(60, 8) + labels[:, None].to(torch.get_default_dtype())
    net = seeded(nn.Sequential(nn.Linear(8, 16), nn.Hardswish(), nn.Dropout(0.0), nn.Linear(16, 6)))
    arc, center = seeded(ArcMargin(6, 5), 1), seeded(CenterLoss(5, 6), 2)
    triplet = nn.TripletMarginLoss(margin=0.5, p=2)
    other = nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(p=1), margin=1.0, swap=True)
    optimizer = torch.optim.Adamax([*net.parameters(), *arc.parameters()], lr=1e-2)
    of_center = torch.optim.SGD(center.parameters(), lr=0.5)
    for x, y in DataLoader(TensorDataset(data, labels), batch_sampler=ClassSampler(labels, 3, 4)):
        emb = net(x)
        positive, negative = hard_triplets(emb, y)
        loss = triplet(emb, emb[positive], emb[negative]) + 0.1 * other(emb, emb[positive], emb[negative])
        loss = loss + F.cross_entropy(arc(emb, y), y) + 0.05 * center(emb, y)
        loss = loss + 0.1 * F.cosine_embedding_loss(emb, emb.index_select(0, negative), y.new_full((len(y),), -1), margin=0.2)
        for o in (optimizer, of_center):
            o.zero_grad()
        loss.backward()
        for p in center.parameters():
            p.grad.data *= 1.0 / 0.05
        optimizer.step()
        of_center.step()
        yield loss.item()
    with torch.no_grad():
        distances = torch.cdist(net(data), net(data)).fill_diagonal_(float("inf"))
        yield 1 + (labels[distances.topk(3, largest=False).indices] == labels[:, None]).any(1).float().mean().item()
