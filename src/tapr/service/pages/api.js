"use strict";

function make(tag, text) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  return element;
}

function answer(status, said, schemas) {
  const content = said.content && said.content["application/json"];
  const name = content && content.schema && content.schema.$ref && content.schema.$ref.split("/").pop();
  const parts = [make("p", `${status} ${said.description}` + (name ? `: ${name}` : ""))];
  if (name && status === "200") parts.push(make("pre", JSON.stringify(schemas[name].properties, null, 2)));
  return parts;
}

async function draw() {
  const page = await (await fetch("/openapi.json")).json();
  for (const [path, methods] of Object.entries(page.paths)) {
    for (const [method, what] of Object.entries(methods)) {
      const box = make("details");
      box.append(make("summary", `${method.toUpperCase()} ${path}: ${what.description || ""}`));
      for (const one of what.parameters || []) {
        box.append(make("p", `${one.in} ${one.name}: ${one.description || ""} ${JSON.stringify(one.schema)}`));
      }
      if (what.requestBody) box.append(make("p", "body: " + Object.keys(what.requestBody.content).join(", ")));
      for (const [status, said] of Object.entries(what.responses)) {
        box.append(...answer(status, said, page.components.schemas));
      }
      document.getElementById("paths").append(box);
    }
  }
}

draw();
