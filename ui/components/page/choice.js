// The theme a person chose, kept by the browser: "light", "dark", or "system", which is no choice. The script in the head
// of the page (ui/theme.py) draws it.

const KEY = "nightbook.theme";

export const THEMES = { light: "Light", dark: "Dark", system: "As the system" };

export function chosen() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}

export function choose(theme) {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is forbidden: the system goes on deciding.
  }
  dispatchEvent(new Event("nightbook-theme"));
}

// Entries of a menu, one a theme.
export function themeEntries(now, changed) {
  return Object.entries(THEMES).map(([theme, label]) => ({
    label,
    checked: now === theme,
    run() {
      choose(theme);
      changed(chosen());
    },
  }));
}
