"""What the scripts that make pages and pictures of results share."""

import math
import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "docs/results")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import backends  # noqa: E402, F401


def table(head, rows):
    """In Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def show(value):
    """An error, two digits."""
    return "-" if value is None else f"{value:.2g}" if value >= 0.01 else f"{value:.1e}".replace("e-0", "e-")


def write_or_compare(pages, write, command):
    """Writes {path: content}, or says which files differ. Returns the exit status of the command."""
    status = 0
    for path, content in pages.items():
        if write:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
            continue
        with open(path, encoding="utf-8") as f:
            if f.read() != content:
                print(f"{path} is not what {command} makes of the results; run {command} --write")
                status = 1
    return status


# ---- SVG ------------------------------------------------------------------------------------------------------------


def svg_head(width, height, title, heading):
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" fill="#1f2328">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(16, 26, heading, size=15, more=' font-weight="bold"'),
    ]


def text(x, y, content, anchor="start", size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{content}</text>'


def dots(points, color):
    path = "".join(f"M{x:.1f},{y:.1f}h0" for x, y in points)
    return f'<path d="{path}" stroke="{color}" stroke-width="4.4" stroke-linecap="round"/>'


class Axes:
    """A panel: bits a value to the right, an error upwards, both logarithmic, labels of bits in the format form."""

    def __init__(self, x0, y0, width, height, bits_log2, error_log10, form):
        self.x0, self.y0, self.width, self.height = x0, y0, width, height
        self.left, self.right = bits_log2
        self.low, self.high = error_log10
        self.form = form

    def place(self, bits, error):
        """What lies outside the axes is left out: None."""
        if not error:
            return None
        x = (math.log2(bits) - self.left) / (self.right - self.left)
        y = (self.high - math.log10(error)) / (self.high - self.low)
        return (self.x0 + x * self.width, self.y0 + y * self.height) if 0 <= x <= 1 and 0 <= y <= 1 else None

    def svg(self):
        out, grid = [], ""
        for e in range(self.low, self.high + 1, 2):
            y = self.y0 + (self.high - e) / (self.high - self.low) * self.height
            grid += f"M{self.x0},{y:.1f}h{self.width}"
            out.append(text(self.x0 - 6, y + 4, f"1e{e}", "end"))
        for e in range(math.ceil(self.left), math.floor(self.right) + 1):
            x = self.x0 + (e - self.left) / (self.right - self.left) * self.width
            grid += f"M{x:.1f},{self.y0}v{self.height}"
            out.append(text(x, self.y0 + self.height + 14, format(2.0**e, self.form), "middle"))
        return [*out, f'<path d="{grid}" stroke="#e3e7eb"/>']


def curve(points, color, dash):
    """Points and the line through them."""
    style = f' stroke-dasharray="{dash}"' if dash else ""
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{style} points="{line}"/>', dots(points, color)]


def marker(shape, x, y, color):
    corners = {
        "square": ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        "diamond": ((0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)),
        "up": ((0, -4), (4, 3), (-4, 3)),
        "down": ((0, 4), (4, -3), (-4, -3)),
    }[shape]
    return '<polygon points="' + " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners) + f'" fill="{color}"/>'
