# One image for every part; what a container does is its command. No torch, no compiler, no root.
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/nemesis
COPY constraints.txt pyproject.toml README.md ./
# dependencies first: they change less often than the code
RUN /opt/nemesis/bin/python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'] + tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['nvidia']))" > dependencies.txt \
 && /opt/nemesis/bin/pip install --no-cache-dir -c constraints.txt -r dependencies.txt "setuptools>=77"
COPY . .
RUN /opt/nemesis/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/nemesis/bin/pip uninstall -y setuptools pip

FROM python:3.12-slim
COPY --from=build /opt/nemesis /opt/nemesis
ENV PATH=/opt/nemesis/bin:$PATH PYTHONUNBUFFERED=1 NEMESIS_STATE_DIR=/tmp/nemesis
USER 10001:10001
ENTRYPOINT ["nemesis"]
CMD ["--help"]
