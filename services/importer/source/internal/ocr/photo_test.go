package ocr

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const title = "Lemon Pancakes"

var lines = []string{
	"Ingredients", "1 1/2 cups flour", "2 tablespoons sugar", "3/4 cup milk", "2 eggs", "250 g butter", "",
	"Method", "Whisk the flour and the sugar with the milk.", "Fry for 12 minutes at 350 degrees.",
}

// page is a page with a recipe, as it is seen.
func page(t *testing.T) *image.Gray {
	t.Helper()
	return pageOf(t, 1, lines)
}

// pageOf is a page with columns of lines, each as wide as 34 letters, or less.
func pageOf(t *testing.T, scale int, columns ...[]string) *image.Gray {
	t.Helper()
	size, left := 28*scale, 100*scale
	face := func(data []byte, size float64) font.Face {
		parsed := check.Must(opentype.Parse(data))(t)
		return check.Must(opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72}))(t)
	}
	out := image.NewGray(image.Rect(0, 0, (14+20*len(columns))*size, 2*size*(len(columns[0])+5)))
	draw.Draw(out, out.Rect, image.NewUniform(color.Gray{Y: 240}), image.Point{}, draw.Src)
	pen := font.Drawer{Dst: out, Src: image.Black, Face: face(gobold.TTF, 1.8*float64(size)), Dot: fixed.P(left, 4*size)}
	pen.DrawString(title)
	pen.Face = face(goregular.TTF, float64(size))
	for column, texts := range columns {
		for n, text := range texts {
			pen.Dot = fixed.P(left+column*20*size, (13+3*n)*size/2+size)
			pen.DrawString(text)
		}
	}
	return out
}

// A page with two columns is read one after the other, and a list whose amounts are a column line by line.
func TestColumns(t *testing.T) {
	t.Parallel()
	r := reader(t)
	const method = "Whisk the flour and the sugar.|Add the milk to the bowl|and stir it for 2 minutes.|Melt the butter in a pan.|Fry it for 12 minutes.|Serve with the lemon."
	for name, c := range map[string]struct{ left, right, want string }{
		"two columns": {
			"2 cups of flour|3 tablespoons of sugar|250 ml of cold milk|2 eggs, beaten|100 g of soft butter|1 lemon", method,
			"2 cups of flour|3 tablespoons of sugar|250 ml of cold milk|2 eggs, beaten|100 g of soft butter|1 lemon|" + method,
		},
		"amounts before names": {
			"2 cups|30 ml|250 ml|2|100 ml", "white flour, sifted|brown sugar|cold milk from the fridge|eggs|soft butter",
			"2 cups white flour, sifted|30 ml brown sugar|250 ml cold milk from the fridge|2 eggs|100 ml soft butter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shot := shoot(t, pageOf(t, 1, strings.Split(c.left, "|"), strings.Split(c.right, "|")), 1, 5, 1, rand.New(rand.NewPCG(1, 1)))
			var got []string
			for _, l := range check.Must(r.Read(t.Context(), "job", shot, MaxCPU))(t)[1:] {
				if l.Text != "" {
					got = append(got, l.Text)
				}
			}
			check.Equal(t, strings.Join(got, "|"), c.want, "it reads")
		})
	}
}

// No number of a line whose fraction was misread is sure.
func TestFractionsAreDoubtful(t *testing.T) {
	t.Parallel()
	r := reader(t)
	for n, noise := range []float64{0, 12} {
		shot := shoot(t, pageOf(t, 1+n, []string{
			"1½ cups flour", "½ tsp salt", "¾ cup milk", "2¼ cups sugar", "1⅔ cups water", "3½ tablespoons oil", "1 ½ cups rice", "⅛ tsp nutmeg", "2 eggs",
		}), 0, noise, 1, rand.New(rand.NewPCG(1, 1)))
		for _, l := range check.Must(r.Read(t.Context(), "job", shot, MaxCPU))(t) {
			check.That(t, !strings.ContainsAny(l.Sure, "0123456789") || l.Sure == "2 eggs", "noise %v: %q has a sure number in %q", noise,
				l.Text, l.Sure)
		}
	}
}

// A photo of 24 megapixels, as telephones take them, is read within the time for a photo, even from a HEIC. It has no noise: the HEIC
// would lose it, and take longer to make.
func TestLargePhotos(t *testing.T) {
	t.Parallel()
	r := reader(t)
	small := pageOf(t, 3, lines)
	large := image.NewGray(image.Rect(0, 0, 4000, 6000))
	draw.Draw(large, large.Rect, image.NewUniform(color.Gray{Y: 240}), image.Point{}, draw.Src)
	draw.Draw(large, small.Rect.Add(image.Pt(200, 500)), small, image.Point{}, draw.Src)
	photo := shoot(t, large, 0, 0, 6, rand.New(rand.NewPCG(1, 1)))
	check.Equal(t, MaxPixels(photo), MostPixels, "a baseline JPEG has at most")
	converter := check.Must(NewConverter(r.config))(t)
	converted, left, err := converter.JPEG(t.Context(), "job", heicOf(t, photo))
	check.OK(t, err)
	check.Equal(t, Title(check.Must(r.Read(t.Context(), "job", converted, left))(t)), title, "title")
}

// A HEIC that a telephone took while it was held on its side is upright as a JPEG, and is read. The HEIC has the turn twice, as telephones
// store it: as a property (irot), by which programs turn the pixels, and in its EXIF, where it is only information.
func TestAPhotoOfATelephoneOnItsSideIsUpright(t *testing.T) {
	t.Parallel()
	r := reader(t)
	testbed.HEIF.Find(t)
	converter := check.Must(NewConverter(r.config))(t)
	photo, left, err := converter.JPEG(t.Context(), "job", check.Must(os.ReadFile("testdata/side.heic"))(t))
	check.OK(t, err)
	size := check.Must(jpeg.DecodeConfig(bytes.NewReader(photo)))(t)
	check.Equal(t, image.Pt(size.Width, size.Height), page(t).Rect.Size(), "pixels")
	check.Equal(t, orientation(photo), 1, "orientation") // the program for reading often finds out itself
	check.Equal(t, Title(check.Must(r.Read(t.Context(), "job", photo, left))(t)), title, "title")

	// A mirrored photo has it twice, too: the property is imir.
	side := check.Must(os.ReadFile("testdata/side.heic"))(t)
	mirrored := bytes.Replace(side, []byte("\x09irot\x03"), []byte("\x09imir\x01"), 1)
	mirrored = bytes.Replace(mirrored, []byte("\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06"), []byte("\x01\x12\x00\x03\x00\x00\x00\x01\x00\x02"), 1)
	photo, _, err = converter.JPEG(t.Context(), "job", mirrored)
	check.OK(t, err)
	check.Equal(t, orientation(photo), 1, "orientation of a mirrored photo")
}

// heicOf returns photos as one HEIC, in little time.
func heicOf(t *testing.T, photos ...[]byte) []byte {
	t.Helper()
	to := filepath.Join(t.TempDir(), "photo.heic")
	args := []string{"-q", "20", "-p", "preset=ultrafast", "-o", to}
	for n, photo := range photos {
		args = append(args, filepath.Join(filepath.Dir(to), fmt.Sprint(n, ".jpg")))
		check.OK(t, os.WriteFile(args[len(args)-1], photo, 0o600))
	}
	out, err := exec.CommandContext(t.Context(), testbed.HEIF.Find(t)[1], args...).CombinedOutput()
	check.Require(t, err == nil, "%s: %v", out, err)
	return check.Must(os.ReadFile(to))(t)
}

// shoot returns a photo of a page: turned by degrees, noisy, and stored in an orientation of EXIF.
func shoot(t *testing.T, page *image.Gray, degrees, noise float64, orientation int, random *rand.Rand) []byte {
	t.Helper()
	stored := cmp.Or(map[int]int{6: 8, 8: 6}[orientation], orientation) // the others are their own inverse
	out := view{grey: view{grey: page, orientation: 1}.draw(1, degrees), orientation: stored}.draw(1, 0)
	for i, p := range out.Pix {
		if noise == 0 {
			break
		}
		out.Pix[i] = uint8(min(max(float64(p)+random.NormFloat64()*noise, 0), math.MaxUint8))
	}
	var b bytes.Buffer
	check.OK(t, jpeg.Encode(&b, out, &jpeg.Options{Quality: 75}))
	exif := binary.BigEndian.AppendUint16([]byte("\xff\xd8\xff\xe1\x00\x22Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01"), uint16(orientation))
	return append(append(exif, 0, 0, 0, 0, 0, 0), b.Bytes()[2:]...)
}

func reader(t *testing.T) *Reader {
	t.Helper()
	folders := check.Must(program.NewFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	r, err := New(t.Context(), Config{
		Folders: folders, Languages: "eng", Path: testbed.Tesseract.Find(t)[0], Timeout: time.Minute,
	})
	check.OK(t, err)
	return r
}

// However the camera was held, the photo is read: each number as it is on the page, or not as a sure one, and the title.
func TestPhotosAreReadHoweverTheyWereTaken(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	r := reader(t)
	for n, c := range []struct {
		degrees, noise float64
		orientation    int
	}{
		{0, 0, 1}, {0, 20, 2}, {5, 0, 3}, {-5, 25, 4}, {2, 10, 5}, {-3.3, 0, 6}, {9, 20, 7}, {-13, 0, 8}, {random.Float64()*24 - 12, 15, 6},
	} {
		shot := shoot(t, page(t), c.degrees, c.noise, c.orientation, random)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			got := check.Must(r.Read(t.Context(), "job", shot, MaxCPU))(t)
			check.Equal(t, Title(got), title, fmt.Sprintf("seed %d, %+v: title", seed, c))
			var text, sure []string
			for _, l := range got {
				text, sure = append(text, l.Text), append(sure, l.Sure)
			}
			for _, line := range lines {
				check.That(t, slices.Contains(text, line), "seed %d, %+v: no line %q in %q", seed, c, line, text)
			}
			for word := range strings.FieldsSeq(strings.Join(sure, " ")) {
				check.That(t, !strings.ContainsAny(word, "0123456789") || slices.Contains(strings.Fields(strings.Join(lines, " ")), word),
					"seed %d, %+v: a sure %q in %q", seed, c, word, sure)
			}
		})
	}
}

// A noisy photo is smoothed, so that no speck becomes a point, and a clear one stays as sharp as it is.
func TestNoiseIsSmoothed(t *testing.T) {
	t.Parallel()
	for _, deviation := range []float64{0, 10, 20, 40} {
		p := page(t)
		shot := shoot(t, p, 0, deviation, 1, rand.New(rand.NewPCG(1, 1)))
		decoded := check.Must(jpeg.Decode(bytes.NewReader(shot)))(t)
		grey := greyOf(decoded)
		before := noise(grey) // JPEG has taken some of it
		check.That(t, before >= deviation*0.3 && before <= deviation*1.1, "noise of %v is taken for %v", deviation, before)
		pgm := check.Must(upright(t.Context(), shot))(t)
		after := noise(&image.Gray{Pix: pgm[len(pgm)-len(p.Pix):], Stride: p.Stride, Rect: p.Rect})
		check.That(t, after <= before/2, "noise of %v is still %v", before, after)
		check.That(t, deviation != 0 || bytes.HasSuffix(pgm, grey.Pix[:len(p.Pix)]), "a clear photo was changed")
	}
}

// Of several images the first is taken, even if there is no time for all of them, unless it is not complete.
func TestTheFirstOfSeveralImagesIsTaken(t *testing.T) {
	t.Parallel()
	r := reader(t)
	shot := shoot(t, page(t), 0, 0, 1, rand.New(rand.NewPCG(1, 1)))
	both := heicOf(t, shot, shoot(t, image.NewGray(image.Rect(0, 0, 64, 64)), 0, 0, 1, rand.New(rand.NewPCG(1, 1))))
	file := filepath.Join(t.TempDir(), "1.jpg")
	check.OK(t, os.WriteFile(file, shot, 0o600))
	for name, c := range map[string]struct {
		program string // "" for the real one
		want    error
	}{
		"two images":     {},
		"a large second": {"cp " + file + " photo-1.jpg; kill -XCPU $$", nil},
		"a large first":  {"head -c 9999 " + file + " >photo-1.jpg; kill -XCPU $$", program.ErrCPU},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			converter := check.Must(NewConverter(r.config))(t)
			if c.program != "" {
				// The program ends as when the kernel has killed it, and its start alone takes more than this time.
				converter.config.Path, converter.most = filepath.Join(t.TempDir(), "heif-convert"), 100*time.Microsecond
				testbed.WriteProgram(t, converter.config.Path, "#!/bin/sh\n"+c.program)
			}
			photo, left, err := converter.JPEG(t.Context(), "job", both)
			check.ErrorIs(t, err, c.want)
			if c.want == nil {
				check.Equal(t, Title(check.Must(r.Read(t.Context(), "job", photo, left))(t)), title, "title")
			}
		})
	}
}

// Numbers of low confidence, and those whose gap or zero was misread, are not sure.
func TestTable(t *testing.T) {
	t.Parallel()
	row := func(line int, confidence, word string) string {
		return fmt.Sprintf("5\t1\t1\t1\t%d\t1\t0\t0\t9\t20\t%s\t%s\n", line, confidence, word)
	}
	table := "level\tpage_num\n4\t1\t1\t1\t1\t0\t0\t0\t9\t20\t-1\t\n" + row(1, "95", "11/2") + row(1, "30", "cups") + row(1, "95", "flour") +
		row(2, "79.9", "5") + row(2, "95", "1/4") + row(3, "x", "10/12") + row(3, "80", "¾") + row(4, "10", "½") + row(4, "90", " ") + "5\t1\n" +
		row(5, "95", "35@") + row(5, "95", "g") + row(5, "95", "a@b") + row(5, "95", "@") + row(6, "95", "1") + row(6, "95", "%") + row(6, "95", "cups") +
		row(7, "95", "2¥%") + row(7, "95", "EL") + row(8, "95", "Y2") + row(8, "95", "tasse") + row(9, "95", "10") + row(9, "95", "tazas") +
		row(10, "95", "Add") + row(10, "95", "2%") + row(10, "95", "milk") + row(10, "95", "10")
	want := []Line{
		{Text: "1 1/2 cups flour", Sure: "cups flour", Height: 20},
		{Text: "5 1/4", Sure: "1/4", Height: 20},
		{Text: "10/12 ¾", Sure: "¾", Height: 20},
		{Text: "½", Height: 20},
		{Text: "350 g a@b @", Sure: "g a@b @", Height: 20},
		{Text: "1 % cups", Sure: "cups", Height: 20},
		{Text: "2¥% EL", Sure: "EL", Height: 20},
		{Text: "Y2 tasse", Sure: "tasse", Height: 20},
		{Text: "10 tazas", Sure: "tazas", Height: 20}, // what the program makes of a third
		{Text: "Add 2% milk 10", Sure: "Add 2% milk 10", Height: 20},
	}
	check.Equal(t, readTable(table), want)
	check.Equal(t, Title(want), "")
}

func TestLanguagesThatAreMissing(t *testing.T) {
	t.Parallel()
	config := reader(t).config
	config.Languages = "eng+xyz"
	check.ErrorContains(t, check.Err(New(t.Context(), config)), `no language "xyz"`)
}

func FuzzOrientation(f *testing.F) {
	f.Add([]byte("\xff\xd8\xff\xe1\x00\x22Exif\x00\x00II\x2a\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, photo []byte) {
		o := orientation(photo)
		check.That(t, o >= 1 && o <= 8, "%v", o)
	})
}

func FuzzTable(f *testing.F) {
	f.Add("5\t1\t1\t1\t1\t1\t0\t0\t9\t20\t50\t11/2\n5\t1\t2\t1\t1\t1\t0\t0\t9\t20\t95\t99999999999999999999/0\n")
	f.Fuzz(func(t *testing.T, table string) {
		for _, l := range readTable(table) {
			check.That(t, len(l.Sure) <= len(l.Text), "%+v", l)
		}
	})
}

// A JPEG of a few bytes may have a hundred thousand scans, each over all its pixels, and is refused. With fewer its reader stops with its
// context, however far it has come. A few looks more are those of a decoder that reads on after an error.
func TestABombStopsWithItsContext(t *testing.T) {
	t.Parallel()
	const side = 1024
	scan := []byte{0xFF, 0xDA, 0, 8, 1, 1, 0, 1, 63, 0, 0, 1} // SOS: a whole band, and no coefficient in it
	bomb := []byte{
		0xFF, 0xD8, // SOI
		0xFF, 0xC2, 0, 11, 8, side >> 8, side & 0xFF, side >> 8, side & 0xFF, 1, 1, 0x11, 0, // SOF2: progressive, one component
		0xFF, 0xC4, 0, 20, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xE0, // DHT: 0 ends a band of 2^14 blocks
	}
	check.ErrorIs(t, check.Err(upright(t.Context(), append(bomb, bytes.Repeat(scan, MaxScans+1)...))), ErrScans)
	bomb = append(bomb, bytes.Repeat(scan, MaxScans)...)
	for _, looks := range []int{0, 10, 50} {
		ctx := &dying{Context: t.Context(), looks: looks}
		_, err := upright(ctx, bomb)
		check.ErrorIs(t, err, context.Canceled)
		check.That(t, ctx.looks > -12, "it has gone on for %d looks", -ctx.looks)
	}
}

// dying is a context that ends when somebody has looked at it a few times.
type dying struct {
	context.Context

	looks int
}

// Err implements context.Context.
func (d *dying) Err() error {
	d.looks--
	if d.looks < 0 {
		return context.Canceled
	}
	return nil
}
