// When an update in place fails, send the same form the plain way: the page that comes says what is wrong.
document.addEventListener("htmx:responseError", sendPlainly);
document.addEventListener("htmx:sendError", sendPlainly);

function sendPlainly(event) {
  const form = event.detail.elt.closest("form");
  if (form) form.submit();
}
