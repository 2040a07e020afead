"""GraphSAGE with sampled neighbours: COO edges, scatter_add and index_add means, neighbour tables, dropout off, micro batches, multilabel loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded


def scatter_mean(src, index, dim_size):
    out = torch.zeros(dim_size, src.size(-1), dtype=src.dtype, device=src.device)
    out.scatter_add_(0, index.unsqueeze(-1).expand_as(src), src)
    count = torch.bincount(index, minlength=dim_size).clamp_(min=1).unsqueeze(-1)
    return out.div_(count)


class SAGEConv(nn.Module):
    def __init__(self, in_channels, out_channels, aggr="mean", normalize=False):
        super().__init__()
        self.aggr, self.normalize = aggr, normalize
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def reset_parameters(self):
        for m in (self.lin_l, self.lin_r):
            m.reset_parameters()

    def forward(self, x, edge_index):
        row, col = edge_index
        gathered = x.index_select(0, row)
        if self.aggr == "mean":
            out = scatter_mean(gathered, col, x.size(0))
        elif self.aggr == "max":
            out = torch.full_like(x, float("-inf")).scatter_reduce(0, col[:, None].expand_as(gathered), gathered, reduce="amax")
            out = out.masked_fill(out.isinf(), 0.0)
        else:
            out = torch.zeros_like(x).index_add(0, col, gathered)
        out = self.lin_l(out) + self.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def extra_repr(self):
        return f"aggr={self.aggr}"


class SAGE(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(features, hidden), SAGEConv(hidden, hidden, "max", True), SAGEConv(hidden, classes, "sum")])
        self.norms = nn.ModuleList([nn.BatchNorm1d(hidden) for _ in range(2)])

    def forward(self, x, edges):
        for i, conv in enumerate(self.convs[:-1]):
            x = F.dropout(F.relu(self.norms[i](conv(x, edges))), p=0.0, training=self.training)
        return self.convs[-1](x, edges)


def without_loops(edges):
    edges = edges[:, edges[0] != edges[1]]
    codes = torch.unique(edges[0] * 1000 + edges[1])
    return torch.stack([torch.div(codes, 1000, rounding_mode="floor"), codes % 1000])


DTYPE = "float64"


def main():
    nodes = 40
    edges = without_loops(integers(nodes, 2, 160))
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    degrees = torch.zeros(nodes).scatter_add_(0, edges[1], torch.ones(edges.size(1)))
    x = torch.cat([numbers(nodes, 10, seed=1), degrees.log1p().view(-1, 1)], dim=-1)
    y = (numbers(nodes, 5, seed=2) > 0.3).to(x.dtype)
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[torch.arange(0, nodes, 2)] = True
    model = seeded(SAGE(x.size(1), 16, 5))
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.full((5,), 1.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        model.train()
        optimizer.zero_grad(set_to_none=True)
        logits = model(x, edges)
        loss = criterion(logits[mask], y[mask])
        loss.backward()
        optimizer.step()
        yield loss.item()
    model.eval()
    with torch.no_grad():
        predicted = model(x, edges)[~mask].gt(0).long()
    truth = y[~mask].long()
    tp = (predicted & truth).sum().item()
    yield 2 * tp / max((predicted.sum() + truth.sum()).item(), 1)
    values, counts = torch.unique(predicted.sum(1), return_counts=True)
    yield (values * counts).sum().float().item()
