module github.com/expediter-io/expediter/tools

go 1.26
