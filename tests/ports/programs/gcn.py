"""A graph network: a normalized adjacency matrix, Parameters by hand, weight decay in parameter groups, accuracy with masks."""
import math

import torch
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConv(Module):
    def __init__(self, in_features, out_features, use_bias=True):
        super(GraphConv, self).__init__()
        self.kernel = Parameter(torch.FloatTensor(in_features, out_features))
        if use_bias:
            self.bias = Parameter(torch.zeros(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.kernel.size(1))
        self.kernel.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.mm(adj, torch.mm(input, self.kernel))
        return output if self.bias is None else output + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.kernel.size(0)} -> {self.kernel.size(1)})"


class GCN(Module):
    def __init__(self, nfeat, nhid, nclass):
        super(GCN, self).__init__()
        self.gc1 = GraphConv(nfeat, nhid)
        self.gc2 = GraphConv(nhid, nclass)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.0, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def normalized(adj):
    adj = adj + torch.eye(adj.size(0))
    inverse = torch.pow(adj.sum(1), -0.5).flatten()
    inverse[torch.isinf(inverse)] = 0.0
    return inverse.unsqueeze(1) * adj * inverse.unsqueeze(0)


def main():
    nodes = 30
    edges = (numbers(nodes, nodes) > 1.2).to(torch.get_default_dtype())
    adj = normalized(torch.maximum(edges, edges.t()))
    features, labels = numbers(nodes, 12, seed=1), integers(3, nodes)
    train = torch.arange(nodes)[:20]
    model = seeded(GCN(12, 8, 3))
    optimizer = torch.optim.Adam([{"params": model.gc1.parameters(), "weight_decay": 5e-4}, {"params": model.gc2.parameters()}], lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[train], labels[train])
        loss.backward()
        optimizer.step()
        yield loss.item()
    yield (output[train].max(1)[1].type_as(labels) == labels[train]).double().mean().item()
