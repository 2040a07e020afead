"""`pyflame train mlp|cnn|resnet|SCRIPT` (python -m pyflame.train): a Trainer from a command line."""
import sys

from ._command import main

sys.exit(main())
