// Sets light or dark before the first paint, if the user has chosen one.
try {
  const theme = localStorage.getItem("runner.theme");
  if (theme) document.documentElement.dataset.theme = theme;
  if (localStorage.getItem("runner.rail") === "narrow") document.documentElement.dataset.rail = "narrow";
} catch { /* storage is turned off */ }
