"""The programs and their runner are found by name."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
