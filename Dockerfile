# docker build -t orrery . && docker run --rm -v "$PWD:/work" orrery run scenario.yaml
FROM debian:12 AS build
COPY . /orrery
WORKDIR /orrery
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev file git ca-certificates \
 && bash -c '. tools/setup.sh && build release orrery' \
 && cmake --build build/release --target package

FROM debian:12-slim
COPY --from=build /orrery/build/release/orrery_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/orrery_*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/orrery_*.deb
WORKDIR /work
ENTRYPOINT ["orrery"]
