// Return the texts of a page whose contrast is below 4.5, or below 3 for large text (WCAG 2.2, criterion 1.4.3).
(() => {
  const numbers = colour => { const found = colour.match(/[\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
  const luminance = colour => colour.slice(0, 3)
    .map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const over = (front, back) => [0, 1, 2].map(place => front[place] * front[3] + back[place] * (1 - front[3]));
  const behind = element => {
    if (!element) return [255, 255, 255];
    const own = numbers(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const low = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join(" ").trim();
    const visible = element.checkVisibility({opacityProperty: true, visibilityProperty: true}) && element.getBoundingClientRect().width > 1;
    if (!text || !visible || element.closest("svg, script, style")) continue;
    const style = getComputedStyle(element), back = behind(element), front = over(numbers(style.color), back);
    const [dark, light] = [luminance(front), luminance(back)].sort((a, b) => a - b), ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) low.add(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${text.slice(0, 40)}`);
  }
  return [...low];
})()
