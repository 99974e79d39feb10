# An image that serves a sandbox. Build it where `dist` has a wheel (`make wheel`):
#   docker build -f docs/recipes/pod.Dockerfile -t fastaudit-rs .
#   docker run --cap-add SYS_PTRACE -p 8888:8888 -v "$PWD/token:/run/secrets/token:ro" fastaudit-rs
ARG PYTHON=python:3.13-slim
FROM ${PYTHON}
RUN --mount=type=bind,source=dist,target=/wheels \
    python -m pip install --no-cache-dir --find-links /wheels 'fastaudit-rs[serve]'
USER 65534:65534
WORKDIR /tmp
EXPOSE 8888
ENTRYPOINT ["python", "-m", "fastaudit_rs", "serve", "--http", "0.0.0.0:8888"]
CMD ["--token-file", "/run/secrets/token"]
