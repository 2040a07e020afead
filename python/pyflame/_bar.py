"""The bar of lines that say how far something is."""


def bar(part: float, width: int = 24) -> str:
    """A text such as '[######..................]'. part: what is done, from 0 to 1; what lies outside counts as the nearer end."""
    done = round(width * min(max(part, 0.0), 1.0))
    return f"[{'#' * done}{'.' * (width - done)}]"
