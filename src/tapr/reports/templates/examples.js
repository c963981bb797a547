// Click an example to see it larger; Escape or a click closes it.
(() => {
  "use strict";
  const dialog = document.getElementById("picture");
  const [image, text] = [dialog.querySelector("img"), dialog.querySelector("p")];
  for (const example of document.querySelectorAll(".pictures img")) {
    const open = () => {
      image.src = example.src;
      image.alt = example.alt;
      text.textContent = [...example.parentElement.children].slice(1).map((part) => part.textContent).join(" · ");
      dialog.showModal();
    };
    example.tabIndex = 0;
    example.setAttribute("role", "button");
    example.setAttribute("aria-label", `Enlarge: ${example.alt}`);
    example.addEventListener("click", open);
    example.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open();
    });
  }
  dialog.addEventListener("click", () => dialog.close());
})();
