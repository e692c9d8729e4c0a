// Starts Swagger UI with the settings that the page carries; requests from here prove that they are the panel's own.
const { settings, csrfToken } = document.body.dataset;
SwaggerUIBundle({
  ...JSON.parse(settings),
  dom_id: "#swagger-ui",
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["X-CSRFToken"] = csrfToken;
    return request;
  },
});
