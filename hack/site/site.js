// What mdBook leaves to a mouse: to scroll what is wider than the page, and to open the list of pages. And a name that it
// leaves out.
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

  const pages = document.getElementById("mdbook-sidebar-toggle");
  pages.setAttribute("role", "button");
  pages.tabIndex = 0;
  pages.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pages.click();
  });
})();
