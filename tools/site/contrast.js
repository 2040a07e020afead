/* The texts of the page that are shown with too little contrast: {colours: [ratio, element, text]} by WCAG 2.1, at least 4.5 (3 for large texts).
   https://www.w3.org/TR/WCAG21/#contrast-minimum */
() => {
  const colour = (text) => { const n = text.match(/[\d.]+/g).map(Number); return text.startsWith("color(") ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const behind = (element) => {
    if (!element) return [255, 255, 255, 1];
    const own = colour(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, svg") || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const below = behind(element), text = over(colour(style.color), below);
    const [dark, light] = [luminance(text), luminance(below)].sort((a, b) => a - b), ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < least) found[`${style.color} on rgb(${below.slice(0, 3).map(Math.round).join(", ")})`] ??= [ratio.toFixed(2), `${element.tagName}.${element.className}`, node.data.trim().slice(0, 40)];
  }
  return found;
}
