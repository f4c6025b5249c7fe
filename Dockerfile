# normfuse with onnxruntime for the CPU; the models lie in the folder that is mounted on /models.
#
#   docker build -t normfuse .
#   docker run --rm -v "$PWD:/models" normfuse model.onnx
FROM python:3.11-slim
COPY pyproject.toml README.md LICENSE /src/
COPY normfuse /src/normfuse
COPY docs/reasons /src/docs/reasons
RUN pip install --no-cache-dir '/src[cpu,report]' && rm -r /src
WORKDIR /models
ENTRYPOINT ["normfuse"]
CMD ["--help"]
