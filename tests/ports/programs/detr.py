"""A DETR head: backbone with frozen batch norm, sine positions from masks, nn.Transformer pieces, Hungarian matching, generalized IoU, auxiliary losses, parameter groups."""
import copy
import itertools
import math
from typing import Dict, List, Optional

import torch
import torch.nn.functional as F
from support import numbers, seeded
from torch import Tensor, nn


class FrozenBatchNorm2d(torch.nn.Module):
    def __init__(self, n):
        super(FrozenBatchNorm2d, self).__init__()
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("bias", torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        key = prefix + "num_batches_tracked"
        if key in state_dict:
            del state_dict[key]
        super(FrozenBatchNorm2d, self)._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def forward(self, x):
        w, b, rv, rm = (t.reshape(1, -1, 1, 1) for t in (self.weight, self.bias, self.running_var, self.running_mean))
        scale = w * (rv + 1e-5).rsqrt()
        return x * scale + (b - rm * scale)


class NestedTensor(object):
    def __init__(self, tensors, mask: Optional[Tensor]):
        self.tensors, self.mask = tensors, mask

    def decompose(self):
        return self.tensors, self.mask


def nested_tensor_from_tensor_list(tensor_list: List[Tensor]):
    size = [max(s) for s in zip(*[list(img.shape) for img in tensor_list])]
    b, c, h, w = [len(tensor_list)] + size
    dtype, device = tensor_list[0].dtype, tensor_list[0].device
    tensor = torch.zeros([b, c, h, w], dtype=dtype, device=device)
    mask = torch.ones((b, h, w), dtype=torch.bool, device=device)
    for img, pad_img, m in zip(tensor_list, tensor, mask):
        pad_img[: img.shape[0], : img.shape[1], : img.shape[2]].copy_(img)
        m[: img.shape[1], : img.shape[2]] = False
    return NestedTensor(tensor, mask)


def sine_position(mask, num=8, temperature=10000):
    not_mask = ~mask
    y_embed, x_embed = not_mask.cumsum(1, dtype=torch.get_default_dtype()), not_mask.cumsum(2, dtype=torch.get_default_dtype())
    y_embed = y_embed / (y_embed[:, -1:, :] + 1e-6) * 2 * math.pi
    x_embed = x_embed / (x_embed[:, :, -1:] + 1e-6) * 2 * math.pi
    dim_t = torch.arange(num, dtype=torch.get_default_dtype(), device=mask.device)
    dim_t = temperature ** (2 * torch.div(dim_t, 2, rounding_mode="floor") / num)
    out = []
    for e in (y_embed, x_embed):
        p = e[:, :, :, None] / dim_t
        out.append(torch.stack((p[:, :, :, 0::2].sin(), p[:, :, :, 1::2].cos()), dim=4).flatten(3))
    return torch.cat(out, dim=3).permute(0, 3, 1, 2)


class Layer(nn.Module):
    def __init__(self, d, heads, ff, cross):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, heads, dropout=0.0)
        self.multihead_attn = nn.MultiheadAttention(d, heads, dropout=0.0) if cross else None
        self.linear1, self.linear2 = nn.Linear(d, ff), nn.Linear(ff, d)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(3 if cross else 2)])

    def forward(self, x, pos, memory=None, memory_pos: Optional[Tensor] = None, key_padding_mask: Optional[Tensor] = None):
        q = k = x + pos
        x = self.norms[0](x + self.self_attn(q, k, value=x, key_padding_mask=None if self.multihead_attn is not None else key_padding_mask)[0])
        if self.multihead_attn is not None:
            x = self.norms[2](x + self.multihead_attn(query=x + pos, key=memory + memory_pos, value=memory, key_padding_mask=key_padding_mask)[0])
        return self.norms[1](x + self.linear2(F.relu(self.linear1(x))))


class DETR(nn.Module):
    def __init__(self, d=16, classes=3, queries=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), FrozenBatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 12, 3, 2, 1), FrozenBatchNorm2d(12), nn.ReLU())
        self.input_proj = nn.Conv2d(12, d, kernel_size=1)
        layer = Layer(d, 2, 32, False)
        self.encoder = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        layer = Layer(d, 2, 32, True)
        self.decoder = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        self.query_embed = nn.Embedding(queries, d)
        self.class_embed = nn.Linear(d, classes + 1)
        self.bbox_embed = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))

    def forward(self, samples: NestedTensor) -> Dict[str, Tensor]:
        x, m = samples.decompose()
        src = self.input_proj(self.backbone(x))
        mask = F.interpolate(m[None].float(), size=src.shape[-2:]).to(torch.bool)[0]
        pos = sine_position(mask).to(src.dtype).flatten(2).permute(2, 0, 1)
        memory, mask = src.flatten(2).permute(2, 0, 1), mask.flatten(1)
        for layer in self.encoder:
            memory = layer(memory, pos, key_padding_mask=mask)
        query = self.query_embed.weight.unsqueeze(1).repeat(1, x.shape[0], 1)
        tgt, hs = torch.zeros_like(query), []
        for layer in self.decoder:
            tgt = layer(tgt, query, memory, pos, mask)
            hs.append(tgt)
        hs = torch.stack(hs).transpose(1, 2)
        logits, boxes = self.class_embed(hs), self.bbox_embed(hs).sigmoid()
        return {"pred_logits": logits[-1], "pred_boxes": boxes[-1], "aux_outputs": [{"pred_logits": a, "pred_boxes": b} for a, b in zip(logits[:-1], boxes[:-1])]}


def cxcywh_to_xyxy(x):
    x_c, y_c, w, h = x.unbind(-1)
    return torch.stack([(x_c - 0.5 * w), (y_c - 0.5 * h), (x_c + 0.5 * w), (y_c + 0.5 * h)], dim=-1)


def generalized_iou(a, b):
    assert (a[:, 2:] >= a[:, :2]).all()
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])  # noqa: E731
    wh = (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    union = area(a)[:, None] + area(b) - inter
    wh = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).clamp(min=0)
    hull = wh[:, :, 0] * wh[:, :, 1]
    return inter / union - (hull - union) / hull


@torch.no_grad()
def match(outputs, targets):
    bs, queries = outputs["pred_logits"].shape[:2]
    prob = outputs["pred_logits"].flatten(0, 1).softmax(-1)
    boxes = outputs["pred_boxes"].flatten(0, 1)
    ids, wanted = torch.cat([v["labels"] for v in targets]), torch.cat([v["boxes"] for v in targets])
    cost = 5 * torch.cdist(boxes, wanted, p=1) - prob[:, ids] - 2 * generalized_iou(cxcywh_to_xyxy(boxes), cxcywh_to_xyxy(wanted))
    cost = cost.view(bs, queries, -1).cpu()
    pairs = []
    for i, c in enumerate(cost.split([len(v["boxes"]) for v in targets], -1)):
        c = c[i].numpy()
        best = min(itertools.permutations(range(queries), c.shape[1]), key=lambda p, c=c: sum(c[q, j] for j, q in enumerate(p)))
        pairs.append((torch.as_tensor(best, dtype=torch.int64), torch.arange(c.shape[1])))
    return pairs


def criterion(outputs, targets, weight):
    total = 0
    for out in [outputs, *outputs["aux_outputs"]]:
        pairs = match(out, targets)
        idx = torch.cat([torch.full_like(s, i) for i, (s, _) in enumerate(pairs)]), torch.cat([s for s, _ in pairs])
        classes = torch.full(out["pred_logits"].shape[:2], 3, dtype=torch.int64)
        classes[idx] = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, pairs)])
        boxes = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, pairs)], dim=0)
        ce = F.cross_entropy(out["pred_logits"].transpose(1, 2), classes, weight)
        l1 = F.l1_loss(out["pred_boxes"][idx], boxes, reduction="none").sum() / len(boxes)
        giou = (1 - torch.diag(generalized_iou(cxcywh_to_xyxy(out["pred_boxes"][idx]), cxcywh_to_xyxy(boxes)))).sum() / len(boxes)
        total = total + ce + 5 * l1 + 2 * giou
    return total


def main():
    images = [numbers(3, 24, 28, seed=1), numbers(3, 20, 32, seed=2)]
    targets = [{"labels": torch.tensor([0, 2]), "boxes": torch.tensor([[0.3, 0.4, 0.2, 0.3], [0.6, 0.5, 0.4, 0.4]])}, {"labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.5, 0.6]])}]
    model = seeded(DETR())
    model.load_state_dict({**model.state_dict(), "backbone.1.num_batches_tracked": torch.tensor(3)})
    weight = torch.ones(4)
    weight[-1] = 0.1
    groups = [{"params": [p for n, p in model.named_parameters() if "backbone" not in n and p.requires_grad]}, {"params": [p for n, p in model.named_parameters() if "backbone" in n and p.requires_grad], "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(5):
        loss = criterion(model(nested_tensor_from_tensor_list(images)), targets, weight)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        yield loss.item()
