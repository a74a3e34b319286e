// Stands for packages that the page never uses: diagrams are larger than all the rest.
export default {};
