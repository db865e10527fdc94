module github.com/expediter-io/expediter/cmd/expediter

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/text v0.43.0
)

require (
	github.com/expediter-io/expediter/pkg/kvlock v0.0.0 // indirect
	github.com/expediter-io/expediter/pkg/worker v0.0.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/nats-io/nats.go v1.55.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

require (
	github.com/expediter-io/expediter/pkg/contracts v0.0.0
	github.com/rivo/uniseg v0.4.7
	github.com/rogpeppe/go-internal v1.16.0
	github.com/schollz/progressbar/v3 v3.19.1
	github.com/spf13/cobra v1.10.2
	golang.org/x/sync v0.24.0
	golang.org/x/term v0.47.0
)

replace (
	github.com/expediter-io/expediter/pkg/contracts => ../../pkg/contracts
	github.com/expediter-io/expediter/pkg/kvlock => ../../pkg/kvlock
	github.com/expediter-io/expediter/pkg/worker => ../../pkg/worker
)
