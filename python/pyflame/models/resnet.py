"""ResNet (arXiv:1512.03385), with the stride in the 3x3 convolution of a bottleneck; names as in TorchVision."""
from .. import nn


class BasicBlock(nn.Module):
    """Two convolutions of 3x3 with batch norms, added to the input: [N, inputs, H, W] -> [N, planes, H / stride, W / stride]. Figure 5, left, of arXiv:1512.03385.

    downsample: the module whose output is added in place of the input; it is needed where the shapes differ. groups and base_width change nothing: they are those of Bottleneck.

    Raises ValueError for a negative size and a stride of 0; TypeError for sizes that are not ints. A call raises ValueError for another number of
    channels, and where the shapes differ without downsample.
    """

    expansion = 1

    def __init__(self, inputs, planes, stride=1, downsample=None, groups=1, base_width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        short = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + short)


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1 with batch norms, added to the input: [N, inputs, H, W] -> [N, 4 * planes, H / stride, W / stride]. Figure 5, right, of arXiv:1512.03385.

    downsample: the module whose output is added in place of the input; it is needed where the shapes differ. groups: of the convolution of 3x3. base_width: this
    convolution has int(planes * base_width / 64) * groups channels.

    Raises ValueError for a negative size and a stride of 0; TypeError for sizes that are not ints. A call raises ValueError for another number of
    channels, and where the shapes differ without downsample.
    """

    expansion = 4

    def __init__(self, inputs, planes, stride=1, downsample=None, groups=1, base_width=64):
        super().__init__()
        width = int(planes * (base_width / 64)) * groups
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        short = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(y)) + short)


class ResNet(nn.Module):
    """layers: blocks in each of the four stages. zero_init_residual: each block begins as the identity. Input (N, 3, H, W), output (N, num_classes).

    block: BasicBlock or Bottleneck. groups, width_per_group: of the convolutions of 3x3 in a Bottleneck.

    Raises IndexError for fewer than four stages, ValueError for a negative num_classes, and TypeError for an unknown argument. A call raises ValueError
    for another number of channels than 3 and for an image without a batch.
    """

    def __init__(self, block, layers, num_classes=1000, zero_init_residual=False, groups=1, width_per_group=64):
        super().__init__()
        self.inplanes, self.groups, self.base_width = 64, groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2)
        self.layer3 = self._make_layer(block, 256, layers[2], 2)
        self.layer4 = self._make_layer(block, 512, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(m, (BasicBlock, Bottleneck)):
                nn.init.zeros_((m.bn3 if isinstance(m, Bottleneck) else m.bn2).weight)

    def _make_layer(self, block, planes, blocks, stride=1):
        outputs, downsample = planes * block.expansion, None
        if stride != 1 or self.inplanes != outputs:
            downsample = nn.Sequential(nn.Conv2d(self.inplanes, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        layers = [block(self.inplanes, planes, stride, downsample, self.groups, self.base_width)]
        self.inplanes = outputs
        layers += [block(outputs, planes, groups=self.groups, base_width=self.base_width) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(**kwargs):
    """ResNet-18 (He et al., 2016), of BasicBlocks, 11.7 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those
    of ResNet, without block and layers.

    Raises TypeError for an unknown argument, and ValueError for a negative num_classes.
    """
    return ResNet(BasicBlock, [2, 2, 2, 2], **kwargs)


def resnet34(**kwargs):
    """ResNet-34 (He et al., 2016), of BasicBlocks, 21.8 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those
    of ResNet, without block and layers.

    Raises TypeError for an unknown argument, and ValueError for a negative num_classes.
    """
    return ResNet(BasicBlock, [3, 4, 6, 3], **kwargs)


def resnet50(**kwargs):
    """ResNet-50 (He et al., 2016), of Bottlenecks, 25.6 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those
    of ResNet, without block and layers.

    Raises TypeError for an unknown argument, and ValueError for a negative num_classes.
    """
    return ResNet(Bottleneck, [3, 4, 6, 3], **kwargs)


def resnet101(**kwargs):
    """ResNet-101 (He et al., 2016), of Bottlenecks, 44.5 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those
    of ResNet, without block and layers.

    Raises TypeError for an unknown argument, and ValueError for a negative num_classes.
    """
    return ResNet(Bottleneck, [3, 4, 23, 3], **kwargs)


def resnet152(**kwargs):
    """ResNet-152 (He et al., 2016), of Bottlenecks, 60.2 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those
    of ResNet, without block and layers.

    Raises TypeError for an unknown argument, and ValueError for a negative num_classes.
    """
    return ResNet(Bottleneck, [3, 8, 36, 3], **kwargs)
