/* The texts of the SVG in this document whose contrast with what is drawn behind them is below 4.5, as the page shows the picture: after its CSS filter
   (brightness, contrast) and before its background colour. `shown` is {brightness, contrast, background: [r, g, b, a]}. */
(shown) => {
  const colour = (text) => { const n = (text.match(/[\d.]+/g) ?? []).map(Number); return n.length < 3 ? null : [n[0], n[1], n[2], n[3] ?? 1]; };
  const filtered = (c) => c.map((v) => Math.min(255, Math.max(0, (v * shown.brightness - 127.5) * shown.contrast + 127.5)));
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const found = [], shapes = [...document.querySelectorAll("svg rect, svg path, svg circle, svg polygon")];
  for (const text of document.querySelectorAll("svg text")) {
    if (!text.textContent.trim()) continue;
    const box = text.getBoundingClientRect(), x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
    let below = shown.background.slice(0, 3).map((v) => v * shown.background[3]);
    for (const shape of shapes) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      const style = getComputedStyle(shape), fill = style.fill === "none" ? null : colour(style.fill), r = shape.getBoundingClientRect();
      if (!fill || x < r.left || x > r.right || y < r.top || y > r.bottom) continue;
      const point = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
      if (!shape.isPointInFill(point)) continue;
      const opacity = fill[3] * style.fillOpacity * style.opacity;
      below = below.map((v, i) => fill[i] * opacity + v * (1 - opacity));
    }
    const own = colour(getComputedStyle(text).fill);
    const [dark, light] = [luminance(filtered(own)), luminance(filtered(below))].sort((a, b) => a - b), ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} for "${text.textContent.trim().slice(0, 40)}", rgb(${own.slice(0, 3)}) on rgb(${below.map(Math.round)})`);
  }
  return found;
}
