// Runs before anything is painted, so that a chosen theme does not flash.
(() => {
  try {
    const theme = localStorage.getItem("regatta.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be switched off; the system's theme holds then.
  }
})();
