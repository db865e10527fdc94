package ocr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/gif"  // photos are decoded
	_ "image/jpeg" // photos are decoded
	_ "image/png"  // photos are decoded
	"math"

	_ "golang.org/x/image/webp" // photos are decoded
)

const (
	// maxPixels bounds the image that is read, and maxSmall the longer side of the image whose skew is measured.
	maxPixels, maxSmall = 8_000_000, 800

	// noisy is the noise, as the standard deviation of the brightness, from which each pixel is replaced by the mean of its
	// surroundings. The program takes specks beside a word for points.
	noisy = 3.0

	// maxSkew is the largest skew that is looked for, in degrees, and coarse and fine are the steps of the search.
	maxSkew, coarse, fine = 15.0, 0.5, 0.1

	// edges is the share of pixels that count as edges of letters: the pixels that differ most from the pixel above.
	edges = 0.04

	// clearer is the least factor by which a rotation has to concentrate the edges in lines.
	clearer = 1.03
)

// slow is a photo that is read as long as its context lasts. A decoder knows none, so it gets a few bytes at a time: hardly more than a
// scan of a progressive JPEG may have, which is applied to all pixels.
type slow struct {
	ctx   context.Context
	photo *bytes.Reader
}

// Read implements io.Reader.
func (s slow) Read(p []byte) (int, error) {
	const few = 16
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.photo.Read(p[:min(len(p), few)])
}

// upright returns a photo in the best form for reading: as a grey PGM of bounded size, turned by its EXIF orientation, with
// level lines.
func upright(ctx context.Context, photo []byte) ([]byte, error) {
	if n, _ := scans(photo); n > MaxScans {
		return nil, ErrScans
	}
	decoded, _, err := image.Decode(slow{ctx, bytes.NewReader(photo)})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("source: decode the photo: %w", err)
	}
	src := view{grey: greyOf(decoded), orientation: orientation(photo)}
	if src.grey.Rect.Empty() {
		return nil, errors.New("source: the photo has no pixels")
	}
	w, h := src.size()
	small := src.draw(max(1, float64(max(w, h))/maxSmall), 0)
	if n := noise(src.grey); n >= noisy {
		src.blur = min(2+n/15, 3)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := src.draw(max(1, math.Sqrt(float64(w)*float64(h)/maxPixels)), skew(small))
	pgm := fmt.Appendf(nil, "P5 %d %d 255\n", out.Rect.Dx(), out.Rect.Dy())
	return append(pgm, out.Pix...), nil
}

// greyOf returns an image without its colours, on white.
func greyOf(in image.Image) *image.Gray {
	switch in := in.(type) {
	case *image.Gray:
		return in
	case *image.YCbCr:
		return &image.Gray{Pix: in.Y, Stride: in.YStride, Rect: in.Rect}
	}
	out := image.NewGray(in.Bounds())
	for i := range out.Pix {
		out.Pix[i] = math.MaxUint8
	}
	draw.Draw(out, out.Rect, in, in.Bounds().Min, draw.Over)
	return out
}

// view is an image with its EXIF orientation, 1 to 8.
type view struct {
	grey        *image.Gray
	orientation int
	blur        float64 // the side of the square whose mean is a pixel, in pixels of grey, unless a larger factor applies
}

// size returns the width and the height of the image in its orientation.
func (v view) size() (w, h int) {
	if v.orientation > 4 {
		return v.grey.Rect.Dy(), v.grey.Rect.Dx()
	}
	return v.grey.Rect.Dx(), v.grey.Rect.Dy()
}

// one is 1 as a number with fixed point. The places of pixels are such numbers: a photo has some hundred million samples.
const (
	bits = 20
	one  = int64(1) << bits
)

// place is a point of the stored image, in numbers with fixed point.
type place struct{ x, y int64 }

// draw returns the image in its orientation, reduced by a factor, and turned counterclockwise about its middle by
// degrees.
func (v view) draw(factor, degrees float64) *image.Gray {
	w, h := v.size()
	out := image.NewGray(image.Rect(0, 0, max(1, int(float64(w)/factor)), max(1, int(float64(h)/factor))))
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	midX, midY := float64(out.Rect.Dx())/2, float64(out.Rect.Dy())/2
	locate := func(x, y float64) place { // of a point of out
		dx, dy := (x+0.5-midX)*factor, (y+0.5-midY)*factor
		return v.stored(float64(w)/2+cos*dx-sin*dy, float64(h)/2+sin*dx+cos*dy)
	}
	side := max(factor, v.blur)
	samples := int(math.Ceil(side)) // in each direction; their mean has less noise than one sample
	offset := func(n int) float64 { return ((float64(n)+0.5)/float64(samples) - 0.5) * side / factor }
	origin, next := locate(0, 0), locate(1, 0)
	if side == 1 && degrees == 0 { // each place is that of a pixel
		step := int((next.y-origin.y)>>bits)*v.grey.Stride + int((next.x-origin.x)>>bits)
		for y := range h {
			first := locate(0, float64(y))
			from, row := int(first.y>>bits)*v.grey.Stride+int(first.x>>bits), out.Pix[y*out.Stride:][:w]
			for x := range row {
				row[x] = v.grey.Pix[from+x*step]
			}
		}
		return out
	}
	around := make([]place, samples*samples)
	for n := range around {
		sample := locate(offset(n%samples), offset(n/samples))
		around[n] = place{sample.x - origin.x, sample.y - origin.y}
	}
	all := one * one * int64(len(around))
	for y := range out.Rect.Dy() {
		p := locate(0, float64(y))
		for x := range out.Rect.Dx() {
			sum := all / 2 // rounds
			for _, sample := range around {
				sum += v.at(p.x+sample.x, p.y+sample.y)
			}
			out.Pix[y*out.Stride+x] = uint8(sum / all)
			p.x, p.y = p.x+next.x-origin.x, p.y+next.y-origin.y
		}
	}
	return out
}

// stored returns the place in the stored image of a point of the image in its orientation, in pixels from the middle of the first.
func (v view) stored(x, y float64) place {
	w, h := float64(v.grey.Rect.Dx()), float64(v.grey.Rect.Dy())
	switch v.orientation {
	case 2:
		x = w - x
	case 3:
		x, y = w-x, h-y
	case 4:
		y = h - y
	case 5:
		x, y = y, x
	case 6:
		x, y = y, h-x
	case 7:
		x, y = w-y, h-x
	case 8:
		x, y = w-y, x
	}
	return place{int64(math.Round((x - 0.5) * float64(one))), int64(math.Round((y - 0.5) * float64(one)))}
}

// at returns the brightness at a place, interpolated from the four pixels around it, times one squared. Outside the image it is white.
func (v view) at(x, y int64) int64 {
	w, h, stride := v.grey.Rect.Dx(), v.grey.Rect.Dy(), v.grey.Stride
	left, top := int(x>>bits), int(y>>bits)
	if left < -1 || top < -1 || left >= w || top >= h {
		return one * one * math.MaxUint8
	}
	x, y = x&(one-1), y&(one-1)
	from, to := max(top, 0)*stride, min(top+1, h-1)*stride
	first, second := max(left, 0), min(left+1, w-1)
	pix := v.grey.Pix
	return (one-y)*((one-x)*int64(pix[from+first])+x*int64(pix[from+second])) +
		y*((one-x)*int64(pix[to+first])+x*int64(pix[to+second]))
}

// noise returns the standard deviation of the noise in an image, from the median of the residue without its edges and slopes (J.
// Immerkær, Fast Noise Variance Estimation, 1996).
func noise(page *image.Gray) float64 {
	var by [16*math.MaxUint8 + 1]int // pixels by residue
	total := 0
	at := func(x, y int) int { return int(page.Pix[y*page.Stride+x]) }
	step := 1 + page.Rect.Dy()/maxSmall
	for y := 1; y+1 < page.Rect.Dy(); y += step {
		for x := 1; x+1 < page.Rect.Dx(); x++ {
			left := 4*at(x, y) - 2*(at(x-1, y)+at(x+1, y)+at(x, y-1)+at(x, y+1)) +
				at(x-1, y-1) + at(x+1, y-1) + at(x-1, y+1) + at(x+1, y+1)
			by[max(left, -left)]++
			total++
		}
	}
	const perSigma = 6 * 0.6745 // the median residue of white noise
	for left, seen := 0, 0; left < len(by); left++ {
		if seen += by[left]; 2*seen > total {
			return float64(left) / perSigma
		}
	}
	return 0
}

// skew returns the angle in degrees by which the lines of a text rise, 0 when it is not clear. At this angle the edges of
// letters fall into the fewest lines.
func skew(page *image.Gray) float64 {
	var by [math.MaxUint8 + 1][]image.Point // by difference from the pixel above
	for y := 1; y < page.Rect.Dy(); y++ {
		for x := range page.Rect.Dx() {
			d := int(page.Pix[y*page.Stride+x]) - int(page.Pix[(y-1)*page.Stride+x])
			by[max(d, -d)] = append(by[max(d, -d)], image.Pt(x, y))
		}
	}
	var found []image.Point
	for d := len(by) - 1; d > 0 && len(found) < int(edges*float64(len(page.Pix))); d-- {
		found = append(found, by[d]...)
	}
	lines := make([]float64, 4*maxSmall)
	score := func(degrees float64) (sum float64) {
		clear(lines)
		slope := math.Tan(degrees * math.Pi / 180)
		for _, p := range found {
			lines[int(float64(p.Y)+float64(p.X)*slope)+maxSmall]++
		}
		for _, n := range lines {
			sum += n * n
		}
		return sum
	}
	best, most := 0.0, clearer*score(0)
	for _, search := range []struct{ step, around float64 }{{coarse, maxSkew}, {fine, coarse}} {
		middle := best
		for degrees := middle - search.around; degrees <= middle+search.around; degrees += search.step {
			if got := score(degrees); got > most {
				best, most = degrees, got
			}
		}
	}
	return -best
}

// MaxPixels bounds photos that are read, because they are much larger in memory than as files. A JPEG as cameras make them is decoded row
// by row, of others the decoder keeps up to four times as much.
func MaxPixels(photo []byte) int {
	if n, progressive := scans(photo); n == 1 && !progressive {
		return MostPixels
	}
	return 20_000_000
}

// MostPixels is the largest result of MaxPixels.
const MostPixels = 25_000_000

// scans returns the number of scans of a JPEG, 0 for another photo, and whether each refines the one before.
func scans(photo []byte) (n int, progressive bool) {
	if !bytes.HasPrefix(photo, []byte("\xff\xd8")) {
		return 0, false
	}
	const restart, last, end, scan, refined = 0xD0, 0xD7, 0xD9, 0xDA, 0xC2
	for at := 2; at+4 <= len(photo); {
		switch marker := photo[at+1]; {
		case photo[at] != 0xFF || marker == 0xFF: // data, or filled up
			at++
		case marker == 0, marker >= restart && marker <= last:
			at += 2
		case marker == end:
			return n, progressive
		default:
			if marker == scan {
				n++
			}
			progressive = progressive || marker == refined
			at += 2 + max(2, int(binary.BigEndian.Uint16(photo[at+2:])))
		}
	}
	return n, progressive
}

// orientation returns the EXIF orientation of a JPEG, 1 when there is none.
func orientation(photo []byte) int {
	if value, order := orientationIn(photo); value != nil {
		return int(order.Uint16(value))
	}
	return 1
}

// orientationIn returns the bytes of a JPEG that are its EXIF orientation, and their order; nil when there is none.
func orientationIn(photo []byte) ([]byte, binary.ByteOrder) {
	for at := 2; at+4 <= len(photo) && photo[0] == 0xFF && photo[1] == 0xD8 && photo[at] == 0xFF; {
		size := int(binary.BigEndian.Uint16(photo[at+2:]))
		end := at + 2 + size
		if size < 2 || end > len(photo) || photo[at+1] == 0xDA {
			break
		}
		if data, found := bytes.CutPrefix(photo[at+4:end], []byte("Exif\x00\x00")); found && photo[at+1] == 0xE1 {
			return tagOrientation(data)
		}
		at = end
	}
	return nil, nil
}

// tagOrientation is orientationIn for EXIF data, which have the form of a TIFF file.
func tagOrientation(tiff []byte) ([]byte, binary.ByteOrder) {
	const tag, entry = 0x0112, 12
	if len(tiff) < 8 {
		return nil, nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if tiff[0] == 'M' {
		order = binary.BigEndian
	}
	at := uint64(order.Uint32(tiff[4:]))
	if at+2 > uint64(len(tiff)) {
		return nil, nil
	}
	for n := order.Uint16(tiff[at:]); n > 0 && at+2+entry <= uint64(len(tiff)); n, at = n-1, at+entry {
		if e := tiff[at+2 : at+2+entry]; order.Uint16(e) == tag {
			if value := int(order.Uint16(e[8:])); value >= 1 && value <= 8 {
				return e[8:10], order
			}
		}
	}
	return nil, nil
}
