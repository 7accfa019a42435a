// Light, dark, or what the system says.

const ORDER = ["system", "light", "dark"];
const NAMES = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };

/** Let a button step through the themes; a `regatta:theme` event tells those that paint by themselves. */
export function startTheme(button) {
  const show = () => {
    button.textContent = NAMES[current()];
  };
  button.addEventListener("click", () => {
    choose(ORDER[(ORDER.indexOf(current()) + 1) % ORDER.length]);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  show();
}

function current() {
  return document.documentElement.dataset.theme ?? "system";
}

function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("regatta.theme", theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  tell();
}

function tell() {
  document.dispatchEvent(new CustomEvent("regatta:theme"));
}
