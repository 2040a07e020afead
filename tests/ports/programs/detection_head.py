"""A detector's head: anchors from meshgrid, matching by the intersection over union, ROI gathers by grid_sample, a focal loss, smooth_l1, and suppression."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded


def anchors(size, stride, scales=(8.0, 16.0), ratios=(0.5, 1.0, 2.0)):
    h_ratios = torch.sqrt(torch.as_tensor(ratios))
    ws = (1 / h_ratios[:, None] * torch.as_tensor(scales)[None, :]).view(-1)
    hs = (h_ratios[:, None] * torch.as_tensor(scales)[None, :]).view(-1)
    base = (torch.stack([-ws, -hs, ws, hs], dim=1) / 2).round()
    ys, xs = torch.meshgrid(torch.arange(size) * stride, torch.arange(size) * stride, indexing="ij")
    xs, ys = xs.reshape(-1), ys.reshape(-1)
    shifts = torch.stack((xs, ys, xs, ys), dim=1)
    return (shifts.view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4)


def box_area(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(a, b):
    lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (box_area(a)[:, None] + box_area(b) - inter)


def encode(reference, proposals):
    sizes, centers = proposals[:, 2:] - proposals[:, :2], (proposals[:, 2:] + proposals[:, :2]) * 0.5
    gt_sizes, gt_centers = reference[:, 2:] - reference[:, :2], (reference[:, 2:] + reference[:, :2]) * 0.5
    return torch.cat([(gt_centers - centers) / sizes, torch.log(gt_sizes / sizes)], dim=1)


def decode(deltas, boxes):
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    dx, dy, dw, dh = deltas.unbind(1)
    dw, dh = torch.clamp(dw, max=math.log(1000.0 / 16)), torch.clamp(dh, max=math.log(1000.0 / 16))
    cx, cy = dx * widths + boxes[:, 0] + 0.5 * widths, dy * heights + boxes[:, 1] + 0.5 * heights
    w, h = torch.exp(dw) * widths, torch.exp(dh) * heights
    return torch.stack((cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h), dim=1)


def match(iou, low=0.3, high=0.5):
    """For each anchor the index of its box, -1 for background and -2 for neither; the best anchor of each box is kept."""
    values, matches = iou.max(dim=0)
    everything = matches.clone()
    matches[values < low] = -1
    matches[(values >= low) & (values < high)] = -2
    best, _ = iou.max(dim=1)
    keep = torch.where(iou == best[:, None])[1]
    matches[keep] = everything[keep]
    return matches


def nms(boxes, scores, threshold):
    order, keep = scores.argsort(descending=True), []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][iou <= threshold]
    return torch.as_tensor(keep)


def roi_pool(features, boxes, stride, size=3):
    height, width = features.shape[-2:]
    steps = (torch.arange(size) + 0.5) / size
    xs = boxes[:, None, 0] + steps * (boxes[:, None, 2] - boxes[:, None, 0])
    ys = boxes[:, None, 1] + steps * (boxes[:, None, 3] - boxes[:, None, 1])
    grid = torch.stack([(xs / stride / width * 2 - 1)[:, None, :].expand(-1, size, -1), (ys / stride / height * 2 - 1)[:, :, None].expand(-1, -1, size)], dim=-1)
    return F.grid_sample(features.expand(len(boxes), -1, -1, -1), grid, align_corners=False, padding_mode="border")


class Head(nn.Module):
    def __init__(self, width=8, count=6, classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU6(inplace=True), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(inplace=True))
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.cls_logits, self.bbox_pred = nn.Conv2d(width, count, 1), nn.Conv2d(width, count * 4, 1)
        self.box = nn.Sequential(nn.Flatten(), nn.Linear(width * 9, 16), nn.ReLU(), nn.Linear(16, classes + 1))

    def forward(self, image):
        features = self.stem(image)
        x = F.relu(self.conv(features))
        n = image.shape[0]
        return features, self.cls_logits(x).permute(0, 2, 3, 1).reshape(n, -1), self.bbox_pred(x).view(n, -1, 4, *x.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(n, -1, 4)


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return (alpha * targets + (1 - alpha) * (1 - targets)) * ce * ((1 - p_t) ** gamma)


def main():
    model, size = seeded(Head()), 32
    grid = anchors(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), torch.optim.lr_scheduler.MultiStepLR(optimizer, [2])], milestones=[2])
    boxes = torch.tensor([[2.0, 3.0, 12.0, 14.0], [16.0, 10.0, 30.0, 28.0]])
    labels = torch.tensor([1, 3])
    for step in range(5):
        features, logits, deltas = model(numbers(1, 3, size, size, seed=step))
        matches = match(box_iou(boxes, grid))
        positive = torch.where(matches >= 0)[0]
        used = torch.cat([positive, torch.where(matches == -1)[0]])
        targets = torch.zeros_like(logits[0])
        targets[positive] = 1.0
        loss = sigmoid_focal_loss(logits[0][used], targets[used]).sum() / max(1, positive.numel())
        loss = loss + F.smooth_l1_loss(deltas[0][positive], encode(boxes[matches[positive]], grid[positive]), beta=1 / 9, reduction="sum") / used.numel()
        crops = roi_pool(features, torch.cat([boxes, boxes + 4]).clamp(0, size), 4)
        loss = loss + F.cross_entropy(model.box(crops), torch.cat([labels, labels.new_zeros(2)]), weight=torch.tensor([0.5, 1.0, 1.0, 1.0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()
    with torch.no_grad():
        scores, at = logits[0].sigmoid().topk(30)
        found = decode(deltas[0][at], grid[at])
        found = found.clamp(0, size)
        wide = torch.nonzero(((found[:, 2:] - found[:, :2]) >= 1).all(1)).squeeze(1)
        kept = nms(found[wide], scores[wide], 0.5)
    assert 0 < len(kept) <= 30
    yield found[wide][kept].mean().item()
