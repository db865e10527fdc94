# The command and the three services in one image: `docker build -t registry.example.com/expediter/expediter:v0.1.0 .`
# A container names its program: `docker run … expediter enricher`. Without one it is the command.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
# Git and the .git folder give the programs their version. The importer's extra programs (docs/install.md) and C are left out: the files are static.
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/usr/local/bin/ \
      ./cmd/expediter ./services/enricher/cmd/enricher ./services/importer/cmd/importer ./services/notifier/cmd/notifier \
 && mkdir -m 1777 /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
ENV PATH=/usr/local/bin
USER 65532:65532
CMD ["expediter"]
