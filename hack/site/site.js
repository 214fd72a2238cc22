// What mdBook leaves to a mouse: to scroll what is wider than the page, and to open the list of pages. And a name that it
// leaves out, and a choice of versions.
(() => {
  const reach = () => {
    for (const wide of document.querySelectorAll("main pre > code, main .table-wrapper, main p:has(> img)")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
      else wide.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", reach);
  window.addEventListener("resize", reach);

  document.getElementById("mdbook-searchbar").setAttribute("aria-label", "Search");

  // Who publishes several versions lists them in versions.json of each: [{"version": "0.1.0", "url": "/0.1.0/"}, ...].
  const root = new URL(path_to_root || ".", location);
  fetch(new URL("versions.json", root))
    .then((answer) => answer.json())
    .then((versions) => {
      if (versions.length < 2) return;
      const choice = document.createElement("select");
      choice.className = "versions";
      choice.setAttribute("aria-label", "Version");
      for (const { version, url } of versions) {
        const to = new URL(url, root).href;
        choice.add(new Option(version, to, false, to === root.href));
      }
      const page = location.href.slice(root.href.length);
      choice.addEventListener("change", () => location.assign(choice.value + page));
      document.querySelector("#mdbook-menu-bar .right-buttons").prepend(choice);
    });

  const pages = document.getElementById("mdbook-sidebar-toggle");
  pages.setAttribute("role", "button");
  pages.tabIndex = 0;
  pages.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pages.click();
  });
})();
