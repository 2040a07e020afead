"""The kit of the pictures in docs/images: SVG with text, boxes and arrows on a card of its own, so that a picture reads on light and dark pages."""

STYLE = "font-family:Helvetica,Arial,sans-serif;font-size:14px"
INK, PALE, OURS, THEIRS, PAPER = "#24292f", "#6e7781", "#0b7a75", "#b35900", "#ffffff"


def escaped(words):
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Picture:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" style="{STYLE}">',
                      f"<title>{escaped(title)}</title>", f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}" stroke="#d0d7de"/>']

    def text(self, x, y, words, colour=INK, anchor="start", size=14, bold=False, code=False):
        weight = ' font-weight="bold"' if bold else ""
        family = ' font-family="monospace"' if code else ""
        self.parts.append(f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"{weight}{family}>{escaped(words)}</text>')

    def box(self, x, y, w, h, colour, opacity=1.0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{h}" rx="3" fill="{colour}" fill-opacity="{opacity}"/>')

    def frame(self, x, y, w, h, colour, dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')

    def line(self, x1, y1, x2, y2, colour=PALE, dashed=False, width=1.5):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def curve(self, points, colour=OURS, width=2):
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, r, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{colour}"/>')

    def arrow(self, x1, x2, y):
        """To the right."""
        self.parts.append(f'<path d="M{x1} {y}H{x2 - 6}m-6 -5l8 5l-8 5" fill="none" stroke="{PALE}" stroke-width="1.5"/>')

    def arrow_down(self, x, y1, y2):
        self.parts.append(f'<path d="M{x} {y1}V{y2 - 6}m-5 -6l5 8l5 -8" fill="none" stroke="{PALE}" stroke-width="1.5"/>')

    def done(self):
        return "\n".join([*self.parts, "</svg>", ""])
