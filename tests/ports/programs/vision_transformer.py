"""A vision Transformer with patches by unfold, a class token, blocks in a ModuleList, CrossEntropyLoss with smoothing, AdamW."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded


def img_to_patch(x, patch_size, flatten_channels=True):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // patch_size, patch_size, w // patch_size, patch_size)
    x = x.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    return x.flatten(2, 4) if flatten_channels else x


class AttentionBlock(nn.Module):
    def __init__(self, embed_dim, hidden_dim, num_heads, dropout=0.0):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)
        self.layer_norm_2 = nn.LayerNorm(embed_dim)
        self.linear = nn.Sequential(nn.Linear(embed_dim, hidden_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_dim, embed_dim), nn.Dropout(dropout))

    def forward(self, x):
        inp_x = self.layer_norm_1(x)
        x = x + self.attn(inp_x, inp_x, inp_x)[0]
        return x + self.linear(self.layer_norm_2(x))


class VisionTransformer(nn.Module):
    def __init__(self, embed_dim, hidden_dim, num_channels, num_heads, num_layers, num_classes, patch_size, num_patches):
        super().__init__()
        self.patch_size = patch_size
        self.input_layer = nn.Linear(num_channels * (patch_size**2), embed_dim)
        self.transformer = nn.Sequential(*[AttentionBlock(embed_dim, hidden_dim, num_heads) for _ in range(num_layers)])
        self.mlp_head = nn.Sequential(nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes))
        self.dropout = nn.Dropout(0.0)
        self.cls_token = nn.Parameter(torch.randn(1, 1, embed_dim))
        self.pos_embedding = nn.Parameter(torch.randn(1, 1 + num_patches, embed_dim))

    def forward(self, x):
        x = self.input_layer(img_to_patch(x, self.patch_size))
        b, t, _ = x.shape
        x = torch.cat([self.cls_token.repeat(b, 1, 1), x], dim=1)
        x = self.dropout(x + self.pos_embedding[:, : t + 1])
        x = self.transformer(x.transpose(0, 1))
        return self.mlp_head(x[0])


def main():
    model = seeded(VisionTransformer(16, 32, 3, 4, 2, 10, 4, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.1)
    for step in range(5):
        imgs, labels = numbers(8, 3, 16, 16, seed=step), integers(10, 8, seed=step)
        loss = F.cross_entropy(model(imgs), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        yield loss.item()
