package input

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Config says how files are read.
type Config struct {
	// City is the city of places that name none. Defaults to none.
	City string

	// Format is the form of every file. Defaults to FormatAuto.
	Format Format

	// MaxIDs is how many of the last place ids are remembered to find duplicates; an id costs about 70 bytes. Defaults
	// to 1,000,000.
	MaxIDs int

	// MaxProblems is how many problems a Report describes; the others are only counted. Defaults to 100.
	MaxProblems int

	// MaxRecordBytes is the size of the largest record, which bounds the memory that a broken file can take. Defaults
	// to 256 KiB, a quarter of contracts.MaxBody.
	MaxRecordBytes int

	// Stdin is read for the path "-". Defaults to os.Stdin.
	Stdin io.Reader

	// Strict ends the reading at the first problem. Defaults to false: problems are counted and reading goes on.
	Strict bool
}

func (c Config) withDefaults() Config {
	if c.Format == "" {
		c.Format = FormatAuto
	}
	if c.MaxIDs == 0 {
		c.MaxIDs = 1_000_000
	}
	if c.MaxProblems == 0 {
		c.MaxProblems = 100
	}
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = contracts.MaxBody / 4
	}
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if _, err := ParseFormat(string(c.Format)); err != nil {
		errs = append(errs, err)
	}
	if c.MaxIDs < 2 {
		errs = append(errs, fmt.Errorf("input: MaxIDs is %d: want 2 or more", c.MaxIDs))
	}
	if c.MaxProblems < 0 {
		errs = append(errs, fmt.Errorf("input: MaxProblems is %d: want 0 or more", c.MaxProblems))
	}
	if c.MaxRecordBytes < 64 {
		errs = append(errs, fmt.Errorf("input: MaxRecordBytes is %d: want 64 or more", c.MaxRecordBytes))
	}
	return errors.Join(errs...)
}
