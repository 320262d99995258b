// Forms are sent without leaving the page.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const { thanks } = await answer.json();
    form.replaceWith(`Thank you, ${thanks}. We shall write to you soon.`);
  });
}
